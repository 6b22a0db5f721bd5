"""The text of `fairlead.dev/topology` and `fairlead.dev/subgroup-topology`: levels of a topology, outermost first.

Webhook, controller, engine and verifier read it with this one function. A level is a node label, or, where no node has such a
label, an attribute of devices; which nodes form a domain of it is the engine's business.
Example: "required:example.com/block, preferred:example.com/rack" is one block, and in it as few racks as possible.
"""

from dataclasses import dataclass
from typing import Literal

from fairlead.api.object_names import is_label_key

LEVELS_MAX = 6
TEXT_MAX = LEVELS_MAX * 340
_LEVEL = r"(required|preferred):[^\s,]+"
PATTERN = rf"\s*{_LEVEL}(\s*,\s*{_LEVEL})*\s*"
PATH = ">"
"""Between the values of a domain's path, where several levels are named: block-1>rack-3. (A slash is between namespace and name.)"""
EXAMPLE = "required:topology.kubernetes.io/rack"


@dataclass(frozen=True, slots=True)
class Level:
    """`label`: of nodes, or an attribute of devices."""

    mode: Literal["required", "preferred"]
    label: str

    def __str__(self) -> str:
        return f"{self.mode}:{self.label}"


def levels(text: str) -> tuple[Level, ...]:
    """The levels, outermost first; those that are required come before those that are preferred. Raises ValueError."""
    found: list[Level] = []
    for part in text.split(","):
        entry = part.strip()
        mode, colon, label = entry.partition(":")
        label = label.strip()
        if not entry and found:
            raise ValueError(f"{text!r} has an empty entry: take out the comma that is too many")
        if not colon or mode not in {"required", "preferred"} or not is_label_key(label):
            raise ValueError(
                f"{entry!r} is no topology: write required: or preferred: and a node label, such as {EXAMPLE}; "
                "several levels with commas, the outermost first"
            )
        if any(label == each.label for each in found):
            raise ValueError(f"{label} is named twice: keep one of its entries")
        if mode == "required":
            if found and found[-1].mode == "preferred":
                raise ValueError(_swapped(found, label))
            found.append(Level("required", label))
        else:
            found.append(Level("preferred", label))
    if len(found) > LEVELS_MAX:
        raise ValueError(
            f"{len(found)} levels are named, and at most {LEVELS_MAX} count: leave out some of the outer ones"
        )
    return tuple(found)


def _swapped(before: list[Level], label: str) -> str:
    preferred = [str(each) for each in before if each.mode == "preferred"]
    required = [str(each) for each in before if each.mode == "required"]
    right = ", ".join((*required, f"required:{label}", *preferred))
    return (
        f"required:{label} comes after {preferred[-1]}: levels are written outermost first, and what lies within a required "
        f"one cannot be required of more than it; write {right}, or required: for both"
    )
