"""Typed access to the fields of a raw object: an absent field is empty, a field of the wrong type is an error with its path.

The webhook reads raw JSON, since a patch made from a typed model would drop the fields that are not in the model. A review
is untrusted input: no shape of it may end in another exception than MalformedError.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
Step = str | int
Path = tuple[Step, ...]
"""Where a field is: member names and list indexes, `("spec", "jobs", 0, "template")`."""


class MalformedError(ValueError):
    """An object whose JSON does not have the kind's shape; the message names the field's path."""


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def dotted(path: Path) -> str:
    """`("spec", "jobs", 0, "template")` as `spec.jobs[0].template`."""
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else join(text, step)
    return text


def map_at(parent: Json, key: str, path: str = "") -> Json:
    """parent[key] as an object; {} where absent or null."""
    value = parent.get(key)
    if isinstance(value, dict):
        return value
    if value is None:
        return {}
    raise MalformedError(f"{join(path, key)}: expected an object, not {type(value).__name__}")


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
    """parent[key] as an object of texts, such as annotations, without those that are null; {} where absent or null."""
    value = map_at(parent, key, path)
    for text in value.values():
        if not isinstance(text, str):
            break
    else:
        return value
    for name, text in value.items():
        if text is not None and not isinstance(text, str):
            raise MalformedError(f"{join(path, key)}[{name}]: expected text, not {type(text).__name__}")
    return {name: text for name, text in value.items() if text is not None}


def object_at(object_: Json, path: Path) -> Json:
    """The object at path; {} where a step is absent. Raises MalformedError."""
    if not path:
        return object_
    node: Any = object_
    where = ""
    for step, following in zip(path, (*path[1:], ""), strict=True):
        if isinstance(step, int):
            node, where = node[step] if step < len(node) else {}, f"{where}[{step}]"
        else:
            node, where = (list_at if isinstance(following, int) else map_at)(node, step, where), join(where, step)
    found: Json = node
    return found
