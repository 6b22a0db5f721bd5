"""Suggestions beside the type checker's messages: what to write instead. Each function returns one clause, or None."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from fairlead.cel import types as t
from fairlead.cel.declare import Overload


def similar(name: str, names: Iterable[str], *, known: Iterable[str] = ()) -> str | None:
    """The name that was probably meant, or all known names when they are few."""
    options = [option for option in names if option.isidentifier() or "." in option]
    close = difflib.get_close_matches(name[:64], options, n=1, cutoff=0.7)
    if close:
        return f"did you mean '{close[0]}'?"
    listed = sorted(known)
    return f"known here: {', '.join(listed)}" if 0 < len(listed) <= 8 else None


def no_overload(function: str, overloads: Sequence[Overload], given: Sequence[str], *, member: bool) -> str | None:
    """`given`: the printed types of the arguments, the receiver first."""
    kinds = set(given)
    if function in {"_<_", "_<=_", "_>_", "_>=_"} and kinds & {str(t.QUANTITY), str(t.SEMVER)}:
        return "use compareTo(), isGreaterThan() or isLessThan()"
    if function in {"_==_", "_!=_"} and str(t.QUANTITY) in kinds and "string" in kinds:
        return 'wrap the string: quantity("…")'
    if function in {"_==_", "_!=_", "_+_", "_-_", "_*_", "_/_"} and kinds == {"int", "double"}:
        return "convert one side: double(…) or int(…)"
    if all(overload.member != member for overload in overloads):
        return f"write x.{function}(…)" if overloads[0].member else f"write {function}(x)"
    options = [overload for overload in overloads if overload.member == member]
    if function[0] in "_!-@" or not 0 < len(options) <= 4:
        return None
    return "it takes " + " or ".join(
        f"({', '.join(map(str, overload.params[1:] if member else overload.params))})" for overload in options
    )
