"""An item of the checklist, and its answer. `not checkable here` names what was missing: a right, or a thing that no API shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.cli.health.seen import Seen

Status = Literal["pass", "fail", "not checkable here"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`why` is what was seen."""

    status: Status
    why: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """`key` is unique, `title` what is needed, `fix` a sentence or a command that brings it about."""

    key: str
    title: str
    fix: str
    check: Callable[[Seen], Answer]

    def structured(self, group: str, answer: Answer) -> dict[str, Any]:
        """The fix is of use where the item does not pass."""
        return {
            "group": group,
            "item": self.key,
            "title": self.title,
            "status": answer.status,
            "why": answer.why,
            "fix": None if answer.status == "pass" else self.fix,
        }


@dataclass(frozen=True, kw_only=True)
class Group:
    key: str
    title: str
    items: tuple[Item, ...]


def passed(why: str) -> Answer:
    return Answer(status="pass", why=why)


def failed(why: str) -> Answer:
    return Answer(status="fail", why=why)


def unknown(why: str) -> Answer:
    return Answer(status="not checkable here", why=why)


def never(why: str) -> Callable[[Seen], Answer]:
    """The check of an item that no API shows."""
    return lambda _: unknown(why)
