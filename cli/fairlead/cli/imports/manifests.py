"""The objects of the documents: Lists unpacked, each with its group, version, kind and name, and none twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.cli.imports.documents import Document
from fairlead.cli.imports.draft import Draft
from fairlead.cli.imports.fields import Fields
from fairlead.cli.imports.model import Source, plain, shown


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
