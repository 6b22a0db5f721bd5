"""Manifests that a user wrote: the objects of a YAML text, Lists unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

Json = dict[str, Any]


def documents(text: str, where: str) -> Iterator[Json]:
    """`where`: what the text is called in messages. Raises ValueError for what is no YAML, or no object."""
    try:
        found = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{where}: {error}") from None
    for document in found:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ValueError(f"{where}: holds something that is no Kubernetes object")  # noqa: TRY004 - the text is wrong
        items = document.get("items")
        yield from items if isinstance(items, list) and document["kind"].endswith("List") else [document]
