"""An apiserver of a later version: every struct has a field that our programs do not know, and each write is checked for it.

Within `planted()` the sandbox's schemas have the field LATER, and each object gets one wherever it can have one when it is
stored. `losses` names the writes of our programs after which it was missing in a struct that is still there.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.sandbox.apiserver.call import target_of
from fairlead.sandbox.apiserver.crds import values
from fairlead.sandbox.apiserver.crds.custom import CustomStrategy
from fairlead.sandbox.apiserver.dispatch import Dispatcher
from fairlead.sandbox.apiserver.kinds import decode, schema
from fairlead.sandbox.apiserver.kinds.base import Strategy
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import Key, Store, Stored
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream

Json = dict[str, Any]
LATER = "later"
VALUE = {"kept": "yes"}
_FIELD = schema.Field(
    name=LATER, scalar="any", container="", ref="", required=False, pointer=True, value_struct=False,
    description="", go_type="runtime.RawExtension", facts={},
)  # fmt: skip
_KEYS = ("uid", "type", "name", "flavor", "key", "request", "device")
_UNIONS = frozenset({"V1Volume", "V1VolumeProjection", "V1EnvVarSource", "V1DeviceAttribute", "V1Probe"})
"""Exactly one of their fields is set: what validation counts can have no further one."""
_AUTHORED = (
    "resourceslices: spec.devices",
    "resourceslices: spec.sharedCounters",
    "pods/eviction: status.conditions",
    "gangs/status: status.placement",
)
"""The driver is the only author of the first two, and writes them as the hardware is; the apiserver writes the condition of a pod
that is evicted, over one that the controller set before; the last is an atomic list, computed anew whenever members come to nodes.
"""
_request: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("request", default=("", ""))


class Planted:
    """`writes` are those of our programs, as `PATCH pods/status`; `losses` those that lost a field, with its path."""

    def __init__(self) -> None:
        self.writes: set[str] = set()
        self.losses: list[str] = []
        self.state: State | None = None

    def on_put(self, storage: str, old: Stored | None, obj: Json) -> Json:
        agent, write = _request.get()
        made = copy.deepcopy(obj)
        nodes = self._nodes(storage, made)
        if agent.startswith("fairlead") and old is not None:
            self.writes.add(f"{agent}: {write}")
            found = {path: LATER in node for path, node in nodes}
            for path, node in self._nodes(storage, old.obj):
                if LATER in node and found.get(path) is False:
                    loss = f"{write}: {path}"
                    if not any(each in loss for each in _AUTHORED):
                        self.losses.append(f"{agent}: {loss}")
        for _, node in nodes:
            node[LATER] = dict(VALUE)
        return made

    def _nodes(self, storage: str, obj: Json) -> list[tuple[str, Json]]:
        """Every struct of the object besides its metadata, with a path that names list entries by their keys."""
        if self.state is None:
            return []
        group, _, plural = storage.rpartition("/")
        kinds = self.state.registry.of_resource(group, plural)
        if not kinds:
            return []
        strategy: Strategy = kinds[0].strategy
        if isinstance(strategy, CustomStrategy):
            tops = {name: strategy.root.get("properties", {}).get(name, {}) for name in ("spec", "status")}
            return [node for name, top in tops.items() for node in _custom(obj.get(name), top, name)]
        if isinstance(strategy, BuiltIn):
            fields = schema.schema_of(strategy.model).fields
            return [node for name in fields if name != "metadata" for node in _typed(obj.get(name), fields[name], name)]
        return []


def _typed(value: Any, field: schema.Field, path: str) -> Iterator[tuple[str, Json]]:
    if field.name == LATER or not field.ref or value is None:
        return
    for where, one in _each(value, field.container, path):
        if isinstance(one, dict):
            if field.ref not in _UNIONS:
                yield where, one
            for name, inner in schema.schema_of(field.ref).fields.items():
                if not (field.ref == "V1ObjectMeta" or name == "metadata"):
                    yield from _typed(one.get(name), inner, f"{where}.{name}")


def _custom(value: Any, of: Json, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, list):
        for where, one in _each(value, "list", path):
            yield from _custom(one, of.get("items", {}), where)
    elif isinstance(value, dict) and "properties" in of:
        yield path, value
        for name, inner in of["properties"].items():
            yield from _custom(value.get(name), inner, f"{path}.{name}")


def _each(value: Any, container: str, path: str) -> Iterator[tuple[str, Any]]:
    if container == "list" and isinstance(value, list):
        for index, one in enumerate(value):
            key = next((one[key] for key in _KEYS if key in one), index) if isinstance(one, dict) else index
            yield f"{path}[{key}]", one
    elif container == "map" and isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}[{key}]", one
    elif not container:
        yield path, value


@contextlib.contextmanager
def planted() -> Iterator[Planted]:
    """Begin it before the apiserver is made."""
    found = Planted()
    patch = pytest.MonkeyPatch()
    made_schema, put, prune, handle = schema.TypeSchema, Store.put, values._prune, Dispatcher.handle

    def with_later(model: str, go_name: str, fields: dict[str, schema.Field], *more: Any) -> schema.TypeSchema:
        return made_schema(model, go_name, {**fields, LATER: _FIELD}, *more)

    def put_planted(self: Store, storage: str, key: Key, obj: Json, *, expect: int | None) -> Stored:
        return put(self, storage, key, found.on_put(storage, self.get(storage, key), obj), expect=expect)

    def kept(value: Any, of: Json, path: str, dropped: list[str], *, root: bool = False) -> None:
        saved = value.pop(LATER, None) if isinstance(value, dict) else None
        prune(value, of, path, dropped, root=root)
        if saved is not None:
            value[LATER] = saved

    async def handled(self: Dispatcher, request: Request) -> Response | Stream | None:
        found.state = self.state
        target = target_of(request)
        what = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
        _request.set((request.headers.get("user-agent", ""), f"{request.method} {what}"))
        return await handle(self, request)

    def clear() -> None:
        schema.schema_of.cache_clear()
        decode._always_written.cache_clear()
        schema.nested_schema.cache_clear()
        schema._nested.cache_clear()

    clear()
    patch.setattr(schema, "TypeSchema", with_later)
    patch.setattr(Store, "put", put_planted)
    patch.setattr(values, "_prune", kept)
    patch.setattr(Dispatcher, "handle", handled)
    try:
        yield found
    finally:
        patch.undo()
        clear()
