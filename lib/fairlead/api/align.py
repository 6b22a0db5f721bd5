"""The text of `fairlead.dev/align`: attributes whose values the devices of a gang's members have in common, or apart.

    gpu.fairlead.dev/rail                           each member's devices are on the same rails
    gpu.fairlead.dev/rail=same of gpu+nic           those of the requests `gpu`, and those of `nic`
    gpu.fairlead.dev/nvlinkClique per subgroup      within each subgroup by itself
    resource.kubernetes.io/pcieRoot=distinct        no two members share a value

`same`: of each request every member has the same values, each as often. `distinct`: no value occurs in two members. Several entries
with commas; all of them hold. Webhook, controller and engine read it with this one function.
"""

from dataclasses import dataclass
from typing import Final, Literal

from fairlead.api.object_names import is_attribute_name, is_dns_label

ENTRIES_MAX: Final = 8
TEXT_MAX: Final = ENTRIES_MAX * 512
MODES: Final = ("same", "distinct")
SCOPES: Final = ("gang", "subgroup", "worker-group")
EXAMPLE: Final = "gpu.fairlead.dev/rail=same of gpu"

Scope = Literal["gang", "subgroup", "worker-group"]


@dataclass(frozen=True, slots=True)
class Alignment:
    """One entry. `requests`: names of requests of claims; empty: each of them. `scope`: whose members are compared."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()
    scope: Scope = "gang"

    def __str__(self) -> str:
        of = f" of {'+'.join(self.requests)}" if self.requests else ""
        per = "" if self.scope == "gang" else f" per {self.scope}"
        return f"{self.attribute}={MODES[self.distinct]}{of}{per}"

    def covers(self, request: str) -> bool:
        """Whether it says anything of the devices of this request."""
        return not self.requests or request in self.requests


def alignments(text: str) -> tuple[Alignment, ...]:
    """The entries in their order. Raises ValueError."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"{len(text)} characters, and at most {TEXT_MAX} are read")
    found: list[Alignment] = []
    for part in text.split(","):
        if not part.strip():
            raise ValueError(f"{text!r} has an empty entry: write an attribute, such as {EXAMPLE}")
        entry = _entry(part)
        if any(
            (each.attribute, each.scope) == (entry.attribute, entry.scope) and _overlap(each, entry) for each in found
        ):
            raise ValueError(f"{entry.attribute} is named twice for the same devices: keep one of its entries")
        found.append(entry)
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"{len(found)} entries are named, and at most {ENTRIES_MAX} count")
    return tuple(found)


def by_subgroup(text: str | None) -> bool:
    """Whether members of subgroups are compared. `text` can be read."""
    return text is not None and any(each.scope == "subgroup" for each in alignments(text))


def _entry(part: str) -> Alignment:
    words = part.split()
    attribute, equals, mode = words[0].partition("=")
    if not is_attribute_name(attribute):
        raise ValueError(f"{attribute!r} is no attribute of a device: write its domain, too, such as {EXAMPLE}")
    if equals and mode not in MODES:
        raise ValueError(f"{words[0]!r}: {mode!r} is unknown; write =same or =distinct")
    requests: tuple[str, ...] = ()
    scope: Scope = "gang"
    rest = words[1:]
    while rest:
        if rest[:1] == ["of"] and len(rest) > 1 and not requests:
            requests = tuple(dict.fromkeys(rest[1].split("+")))
            wrong = next((each for each in requests if not is_dns_label(each)), None)
            if wrong is not None:
                raise ValueError(
                    f"{part.strip()!r}: {wrong!r} is no name of a request; write for instance `of gpu+nic`"
                )
        elif rest[:1] == ["per"] and len(rest) > 1 and rest[1] in SCOPES:
            scope = SCOPES[SCOPES.index(rest[1])]
        else:
            raise ValueError(
                f"{part.strip()!r}: {' '.join(rest)!r} is not understood; after the attribute come `of <request>+<request>` "
                "and `per subgroup` or `per worker-group`"
            )
        rest = rest[2:]
    return Alignment(attribute, mode == "distinct", requests, scope)


def _overlap(one: Alignment, other: Alignment) -> bool:
    return not one.requests or not other.requests or not set(one.requests).isdisjoint(other.requests)
