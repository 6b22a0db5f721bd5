"""Reading JSON that should have a shape: absent is empty, wrong is an error that names its path.

Exists because the webhook reads raw objects (a patch must not lose fields that a struct does not know), and
a review is input from outside: no shape of it may end in a crash.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class MalformedError(ValueError):
    """An object whose JSON is not of the kind's shape; the message names the path."""


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def map_at(parent: Json, key: str, path: str = "") -> Json:
    """parent[key] as an object; {} where absent or null."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedError(f"{join(path, key)}: expected an object, not {type(value).__name__}")
    return value


def list_at(parent: Json, key: str, path: str = "") -> list[Json]:
    """parent[key] as a list of objects; [] where absent or null."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"{join(path, key)}: expected a list, not {type(value).__name__}")
    for item in value:
        if not isinstance(item, dict):
            index = next(index for index, each in enumerate(value) if each is item)
            raise MalformedError(f"{join(path, key)}[{index}]: expected an object, not {type(item).__name__}")
    return value


def text_at(parent: Json, key: str, path: str = "") -> str:
    """parent[key] as text; "" where absent or null."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedError(f"{join(path, key)}: expected text, not {type(value).__name__}")
    return value


def int_at(parent: Json, key: str, path: str = "") -> int | None:
    """parent[key] as a whole number; None where absent or null."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedError(f"{join(path, key)}: expected a whole number, not {value!r}")
    return value


def strings_at(parent: Json, key: str, path: str = "") -> dict[str, str]:
    """parent[key] as an object of texts, such as annotations; {} where absent or null."""
    value = map_at(parent, key, path)
    for name, text in value.items():
        if not isinstance(text, str):
            raise MalformedError(f"{join(path, key)}[{name}]: expected text, not {type(text).__name__}")
    return value
