"""What a text is the name of: gangs, queues and nodes that the viewer may see; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fairlead.ui.model.facts import Facts

TEXT_MAX = 253
SHOWN_MAX = 50  # of each kind

Kind = Literal["gang", "queue", "node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """What is called so, or has it in its name, those that are called so first. `more`: how many are not listed."""

    kind: Kind
    names: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`only`: kind and name of what alone is called so or, where nothing is, alone has it in its name."""

    text: str
    hits: tuple[Hits, ...]
    only: tuple[Kind, str] | None


def search(facts: Facts, gangs: Iterable[tuple[str, str]], text: str) -> Found:
    """`gangs`: namespace and name of each that is shown. A text that is empty finds nothing."""
    text = text.strip()[:TEXT_MAX]
    nodes = () if facts.hardware is None else (node.name for node in facts.hardware.nodes.all())
    names: dict[Kind, Iterable[str]] = {
        "gang": (f"{namespace}/{name}" for namespace, name in gangs),
        "queue": (raw["metadata"]["name"] for raw in facts.queues),
        "node": nodes,
    }
    wanted = text.casefold()
    found = {
        kind: sorted(
            (each for each in every if wanted in each.casefold()), key=lambda each: (not _is(each, wanted), each)
        )
        for kind, every in (names.items() if wanted else ())
    }
    every_one = [(kind, name) for kind, listed in found.items() for name in listed]
    called = [(kind, name) for kind, name in every_one if _is(name, wanted)] or every_one
    return Found(
        text=text,
        hits=tuple(
            Hits(kind=kind, names=tuple(listed[:SHOWN_MAX]), more=max(0, len(listed) - SHOWN_MAX))
            for kind, listed in found.items()
            if listed
        ),
        only=called[0] if len(called) == 1 else None,
    )


def _is(name: str, wanted: str) -> bool:
    """Whether it is called so; a gang with or without its namespace."""
    return wanted in {name.casefold(), name.rpartition("/")[2].casefold()}
