"""The objects of the documents (Lists unpacked, each with its group, version, kind and name, and none twice), and the typed reading of one mapping
of them: each fault with its path and value, and which fields nothing read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairlead.api.durations import DURATION_MAX_S
from fairlead.cli.imports.draft import Draft
from fairlead.cli.imports.kinds import DEVICES_MAX
from fairlead.cli.imports.model import Document, Fault, Source, plain, shown
from fairlead.kube import quantity

_GO_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ns|us|µs|ms|s|m|h))+")
_GO_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


class Fields:
    """A mapping at `path` of the source. What cannot be read is appended to `faults`, and counts as absent, as null does."""

    def __init__(self, value: Any, path: str, source: Source, faults: list[Fault]) -> None:
        self.path = path
        self.source = source
        self.faults = faults
        self._read: set[str] = set()
        if value is not None and not isinstance(value, dict):
            self.fault("", f"{shown(value)} is no mapping: write fields with values")
        self._value: dict[Any, Any] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._value)

    def at(self, key: str) -> str:
        if not re.fullmatch(r"\w+", key, re.ASCII):
            return f"{self.path}[{plain(key)}]"
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, text: str) -> None:
        self.faults.append(Fault(self.source, self.at(key) if key else self.path, text))

    def raw(self, key: str) -> Any:
        self._read.add(key)
        return self._value.get(key)

    def ignore(self, *keys: str) -> None:
        self._read.update(keys)

    def unread(self) -> list[tuple[str, Any]]:
        """Path and value of each field that was not asked for, and says something."""
        rest = sorted((str(key), key) for key in self._value if key not in self._read)
        return [(self.at(text), self._value[key]) for text, key in rest if self._value[key] not in (None, "", [], {})]

    def names(self) -> list[str]:
        for key in self._value:
            if not isinstance(key, str):
                self.fault("", f"the key {shown(key)} is no text: write it in quotes")
        return sorted(key for key in self._value if isinstance(key, str))

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None or (isinstance(value, str) and value):
            return value
        if value != "":
            self.fault(key, f"{shown(value)} is no text: write it in quotes")
        return None

    def needed(self, key: str) -> str | None:
        found = self.text(key)
        if found is None and self._value.get(key) in (None, ""):
            self.fault(key, "is required: write it")
        return found

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        found = self.text(key)
        if found is None or found in allowed:
            return found or default
        self.fault(key, f"{shown(found)} is none of {', '.join(allowed)}: write one of these")
        return default

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return value
        self.fault(key, f"{shown(value)} is neither true nor false: write one of them, without quotes")
        return None

    def whole(self, key: str) -> int | None:
        value = self.raw(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63):
            return value
        self.fault(key, f"{shown(value)} is no whole number: write one, without quotes")
        return None

    def amount(self, key: str, *, most: int | None = DEVICES_MAX, unlimited: bool = False) -> Fraction | None:
        """A quantity, 0 or more; with `unlimited` also -1, as it is. None: absent, or at fault."""
        value = self.raw(key)
        if value is None:
            return None
        found = _fraction(value)
        if found is None:
            self.fault(
                key, f"{shown(value)} is no quantity: write a number with an optional suffix, such as 8 or '500m'"
            )
        elif found < 0 and not (unlimited and found == -1):
            self.fault(key, f"{shown(value)} is negative: write 0 or more{', or -1 for no bound' if unlimited else ''}")
        elif most is not None and found > most:
            self.fault(key, f"{shown(value)} is more than {most}: write what the cluster has at most")
        elif most is not None and found.denominator != 1 and 10**9 % found.denominator:
            self.fault(key, f"{shown(value)} has more than nine digits after the point: write fewer")
        else:
            return found
        return None

    def duration(self, key: str) -> str | None:
        """A duration of Go (`1h30m0s`) as we write it, in whole milliseconds; None: absent, none at all, or at fault."""
        text = self.text(key)
        if text is None:
            return None
        if text == "0":
            return None
        if len(text) > 64 or not _GO_DURATION.fullmatch(text):
            self.fault(key, f"{shown(text)} is no duration: write a number with a unit, such as 90s or 1h30m")
            return None
        seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in _GO_PART.findall(text)), Fraction(0))
        return duration_text(min(seconds, Fraction(int(DURATION_MAX_S))))

    def mapping(self, key: str) -> Fields:
        """Empty where it is absent."""
        return Fields(self.raw(key), self.at(key), self.source, self.faults)

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def mappings(self, key: str) -> list[Fields]:
        return [
            Fields(each if each is not None else {}, f"{self.at(key)}[{index}]", self.source, self.faults)
            for index, each in self._list(key)
        ]

    def texts(self, key: str) -> list[str]:
        found: list[str] = []
        for index, each in self._list(key):
            if isinstance(each, str):
                found.append(each)
            else:
                self.fault(f"{key}", f"[{index}]: {shown(each)} is no text: write it in quotes")
        return found

    def strings(self, key: str) -> dict[str, str]:
        """The entries in order of their keys."""
        fields = self.mapping(key)
        found = {name: fields.raw(name) for name in fields.names()}
        for name, value in found.items():
            if not isinstance(value, str):
                fields.fault(name, f"{shown(value)} is no text: write it in quotes")
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def _list(self, key: str) -> Iterator[tuple[int, Any]]:
        value = self.raw(key)
        if value is not None and not isinstance(value, list):
            self.fault(key, f"{shown(value)} is no list: write entries that begin with a dash")
            return
        yield from enumerate(value or ())


def duration_text(seconds: Fraction) -> str | None:
    """`1h30m`; None for no time at all."""
    rest = int(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or None


def _fraction(value: Any) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Fraction(value) if abs(value) < 2**63 else None
    try:
        if isinstance(value, float):
            return Fraction(str(value))
        if isinstance(value, str):
            read = quantity.parse(value)
            return Fraction(read.digits) * Fraction(10) ** read.scale if abs(read.scale) <= 64 else None
    except (ValueError, quantity.QuantityError):
        pass
    return None


@dataclass(frozen=True, slots=True)
class Found:
    """One object. `fields` are the whole object's."""

    source: Source
    group: str
    version: str
    kind: str
    name: str
    namespace: str
    fields: Fields

    @property
    def metadata(self) -> Fields:
        return self.fields.mapping("metadata")

    @property
    def spec(self) -> Fields:
        return self.fields.mapping("spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What is read of one system. `versions`: by group. `kinds`: those that are translated. `others`: those of its groups
    that say nothing of queues, each with why nothing is written for it.
    """

    system: str
    versions: Mapping[str, Collection[str]]
    kinds: Collection[str]
    others: Mapping[str, str]


def objects(documents: Iterable[Document], api: Api, draft: Draft) -> list[Found]:
    """The objects that are translated. Faults and notes go to the draft."""
    found: dict[tuple[str, str, str, str], Found] = {}
    for document in documents:
        for where, value, implied in _unpacked(document):
            each = _object(where, value, implied, draft)
            if each is None or not _known(each, api, draft):
                continue
            key = (each.group, each.kind, each.namespace, each.name)
            if key in found:
                draft.fault(
                    each.source, "metadata.name", f"is also in {found[key].source.where}: remove one of the two"
                )
            else:
                found[key] = each
    if not found and not draft.faults:
        kinds = ", ".join(sorted(api.kinds))
        draft.fault(
            Source("the input"),
            "",
            f"holds nothing of {api.system}: name files with {kinds}, or another system with --from",
        )
    return [found[key] for key in sorted(found)]


def _unpacked(document: Document) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Where, the object, and what its list says of it: items of a QueueList have no kind of their own."""
    rest: list[tuple[str, Any, dict[str, Any]]] = [(document.where, document.value, {})]
    while rest:
        where, value, implied = rest.pop()
        if not isinstance(value, dict) or not isinstance(value.get("items"), list) or not _is_list(value):
            yield where, value, implied
            continue
        kind = str(value.get("kind")).removesuffix("List")
        below = {"kind": kind, "apiVersion": value.get("apiVersion")} if kind else {}
        rest += [(f"{where}, items[{index}]", item, below) for index, item in reversed(list(enumerate(value["items"])))]


def _is_list(value: dict[str, Any]) -> bool:
    return isinstance(value.get("kind"), str) and value["kind"].endswith("List")


def _object(where: str, value: Any, implied: dict[str, Any], draft: Draft) -> Found | None:
    at = Source(where)
    if not isinstance(value, dict):
        draft.fault(at, "", f"{shown(value)} is no object: write apiVersion, kind, metadata and spec")
        return None
    fields = Fields(implied | value, "", at, draft.faults)
    api_version, kind = fields.needed("apiVersion"), fields.needed("kind")
    metadata = fields.mapping("metadata")
    name = metadata.needed("name")
    namespace = metadata.text("namespace") or ""
    if api_version is None or kind is None or name is None:
        return None
    group, _, version = api_version.rpartition("/")
    source = Source(where, plain(kind), plain(f"{namespace}/{name}" if namespace else name))
    return Found(source, group, version, kind, name, namespace, Fields(implied | value, "", source, draft.faults))


def _known(each: Found, api: Api, draft: Draft) -> bool:
    """Whether it is translated; if not, a note or a fault says why."""
    versions = api.versions.get(each.group)
    if versions is None:
        group = plain(each.group or "core")
        draft.note(
            each.source, "", f"is of the API group {group}, which is not {api.system}'s: passed over", lost=False
        )
        return False
    if each.kind in api.others:
        draft.note(each.source, "", api.others[each.kind])
        return False
    if each.kind not in api.kinds:
        known = ", ".join(sorted([*api.kinds, *api.others]))
        draft.fault(
            each.source,
            "kind",
            f"{shown(each.kind)} is no kind of {api.system} that is known; known are {known}: correct it, or remove the object",
        )
        return False
    if each.version not in versions:
        draft.fault(
            each.source,
            "apiVersion",
            f"{shown(each.version)} is no version of {plain(each.group)} that is read; read are {', '.join(versions)}: "
            "convert the object (kubectl get prints a version that the cluster serves)",
        )
        return False
    return True


def note_present(draft: Draft, queue: Any, spec: Fields, texts: Mapping[str, str]) -> None:
    """A note for each of these fields of a spec that is there and has no equal: what to do instead."""
    for name, text in texts.items():
        if spec.raw(name):
            draft.note(spec.source, spec.at(name), text, queue=queue)


def note_unread(draft: Draft, queue: Any, *parts: Fields) -> None:
    """A note for each field that nothing has read."""
    for part in parts:
        for path, value in part.unread():
            draft.note(part.source, path, f"{shown(value)} is not known, or has no equal", queue=queue)
