"""Manifests that a user wrote: the objects of a YAML text, Lists unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.bounded import yaml_text
from fairlead.bounded.limits import MANIFESTS, Limits, UnreadableError

Json = dict[str, Any]


def documents(text: str, where: str, limits: Limits = MANIFESTS) -> Iterator[Json]:
    """`where`: what the text is called in messages. Raises ValueError for what is no YAML, or no object."""
    try:
        found = yaml_text.documents(text, limits)
    except UnreadableError as error:
        raise ValueError(f"{where}: {error}") from None
    for document in found:
        if document is None:
            continue
        _check(document, where)
        items = document.get("items")
        if isinstance(items, list) and document["kind"].endswith("List"):
            for number, item in enumerate(items):
                _check(item, f"{where}: items[{number}]")
            yield from items
        else:
            yield document


def _check(document: object, where: str) -> None:
    """What reads manifests takes these for granted."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ValueError(f"{where}: holds something that is no Kubernetes object")  # noqa: TRY004 - the text is wrong
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError(
            f"{where}: {document['kind']}: metadata: {str(metadata)[:60]!r} is no object; write name and namespace in it"
        )
