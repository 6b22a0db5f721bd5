"""What the webhook answers: allowed or not, and why, with patches, warnings and audit annotations.

Exists so that every handler returns one type. `cause` is a short word for metrics, never a name or a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

Operation = dict[str, Any]

WARNING_CHARS_MAX = 256
WARNINGS_CHARS_MAX = 4096
"""apiserver: longer warnings are cut, and all of them together are dropped beyond this."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken rule of one TenancyPolicy: `rule` is the policy's field, `mode` what is done about it."""

    policy: str
    rule: str
    mode: str
    text: str

    @property
    def message(self) -> str:
        return f"TenancyPolicy {self.policy} ({self.rule}): {self.text}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = True
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    code: int = 200
    cause: str = "ok"
    audit: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()
    """The policies' rules that the object breaks, whatever each one's mode; for metrics."""

    def with_warnings(self, warnings: Iterable[str]) -> Verdict:
        """The same with more warnings, each once, in order."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *warnings))))


def allow(cause: str = "ok", *, warnings: Sequence[str] = (), patch: Sequence[Operation] = ()) -> Verdict:
    return Verdict(cause=cause, warnings=tuple(warnings), patch=tuple(patch))


def deny(cause: str, *faults: str, code: int = 403, warnings: Sequence[str] = ()) -> Verdict:
    """A refusal; each fault names object, field, value and next step, and stands on a line of its own."""
    return Verdict(allowed=False, cause=cause, message="\n".join(faults), code=code, warnings=tuple(warnings))


UNTOUCHED = Verdict(cause="unmanaged")
"""Not ours: allowed as it is."""
