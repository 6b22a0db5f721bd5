"""What the devices of alike nodes have in common, in order: their kinds and the names of their attributes.

Ten thousand nodes of one model publish two million devices, of which a selector reads an attribute or two. Nodes with one layout, whose
devices have the same values of those attributes, are answered alike (`Selectors.select`). Memory only: a node whose layout is
shared with no other is answered the same.
Example: nodes of eight GPUs that differ in UUIDs only have one layout, and one answer to `type == "gpu"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from fairlead.engine.inventory.device import AttributeSchema, Device, DeviceKind
from fairlead.kube.resource import DeviceAttribute

Values = tuple[DeviceAttribute, ...]
Runs = tuple[tuple[int, AttributeSchema], ...]
"""Where devices begin that have other attribute values than the one before; parts of a GPU of one profile have the same."""
Columns = list[tuple[int, int]]
"""Places of values: the number of the run, and the index among its values."""


class NodeLayout:
    """Compared by identity."""

    __slots__ = ("__weakref__", "_schemas", "readable")

    def __init__(self, kinds: Iterable[DeviceKind], schemas: Iterable[AttributeSchema]) -> None:
        self._schemas = tuple(schemas)  # by run
        # Whether CEL can read all values: where it cannot, an expression depends on more than it reads.
        self.readable = not any(kind.unreadable for kind in kinds) and not any(
            schema.unreadable for schema in self._schemas
        )

    def columns(self, attributes: Iterable[str]) -> Columns:
        """Where the values of these attributes are."""
        places = ((run, schema.index.get(name)) for name in attributes for run, schema in enumerate(self._schemas))
        return [(run, index) for run, index in places if index is not None]


class NodeLayouts:
    """Makes layouts; alike devices get the same, as long as some node has it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[tuple[DeviceKind, ...], Runs], NodeLayout] = WeakValueDictionary()

    def of(self, devices: Sequence[Device]) -> tuple[NodeLayout, tuple[Values, ...]]:
        """With the attribute values of each run."""
        runs: list[tuple[int, AttributeSchema]] = []
        of_runs: list[Values] = []
        values: Values | None = None
        schema: AttributeSchema | None = None
        for position, device in enumerate(devices):
            if device.attribute_values is not values or device.schema is not schema:
                values, schema = device.attribute_values, device.schema
                runs.append((position, schema))
                of_runs.append(values)
        kinds = tuple([device.kind for device in devices])
        key = (kinds, tuple(runs))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = NodeLayout(kinds, [schema for _, schema in runs])
        return found, tuple(of_runs)
