"""The result as text: YAML for kubectl with what has no equal as comments at its object, or JSON with `notes`. Pure."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import yaml

from fairlead.api.base import CustomResource
from fairlead.cli.imports.model import Imported, Note, Source

WIDTH = 120


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(imported: Imported, system: str) -> str:
    """Flavors, queues, policies, in the order in which they can be applied."""
    loose = [note for note in imported.notes if _of(note, imported) is None]
    head = [
        f"# Imported by fairlead import --from {system}. Read the lines that say `no equal`, then: kubectl apply -f FILE"
    ]
    parts = ["\n".join([*head, *_comments(loose, with_source=True)]) + "\n"]
    for each in objects(imported):
        key = (str(each["kind"]), str(each["metadata"]["name"]))
        lines = [f"# from {source.subject} ({source.where})" for source in imported.sources.get(key, ())[:8]]
        lines += _comments([note for note in imported.notes if _of(note, imported) == key], with_source=False)
        text = yaml.dump(each, Dumper=_Plain, sort_keys=False, width=1_000_000)
        parts.append("\n".join([*lines, text]))
    return "---\n".join(parts)


def as_json(imported: Imported) -> str:
    """A List; `notes` beside its items."""
    notes = [
        {
            "level": "noEqual" if note.lost else "note",
            "source": _source(note.source),
            "path": note.path or None,
            "text": note.text,
            "about": None if note.about is None else {"kind": note.about[0], "name": note.about[1]},
        }
        for note in imported.notes
    ]
    return (
        json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": objects(imported), "notes": notes},
            indent=2,
        )
        + "\n"
    )


def objects(imported: Imported) -> list[dict[str, Any]]:
    """The objects as kubectl applies them: without what is default."""
    return [_object(each) for each in (*imported.flavors, *imported.queues, *imported.policies)]


def _object(each: CustomResource) -> dict[str, Any]:
    raw = each.model_dump(by_alias=True, exclude_unset=True, exclude={"status"}, mode="json")
    return {key: _whole(raw[key]) for key in ("apiVersion", "kind", "metadata", "spec")}


def _whole(value: Any) -> Any:
    """A weight as people write it: 2 for 2.0."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _of(note: Note, imported: Imported) -> tuple[str, str] | None:
    return note.about if note.about in imported.sources else None


def _source(source: Source) -> dict[str, str | None]:
    return {"where": source.where, "kind": source.kind or None, "name": source.name or None}


def _comments(notes: list[Note], *, with_source: bool) -> list[str]:
    found: list[str] = []
    for note in notes:
        subject = note.source.subject if with_source else ""
        text = ": ".join(part for part in (note.word, subject, note.path, note.text) if part)
        found += textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
    return found
