"""Which nodes stand together on the map: those of one model of GPUs and one rack; and what of the map was chosen; pure.

The rack is the first of the labels below that a node has. Where the nodes of a model have none they are one group, or, where there are too many
to draw, groups of `TOGETHER` in the order of their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, get_args
from urllib.parse import urlencode

from fairlead.api.texts import natural
from fairlead.ui.model.cluster import ClusterView, NodeView

By = Literal["queue", "gang", "utilisation"]
BYS: tuple[By, ...] = get_args(By)
DENSE: Final = 100  # with more nodes only their cells are drawn
RACKS: Final = 1000  # with more nodes only their groups are
TOGETHER: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MapChoice:
    """What of the map was chosen. `by`: what colours are of. `node`: whose devices are listed. `group`: which is shown alone; "" for none."""

    by: By = "queue"
    node: str = ""
    group: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> MapChoice:
        """The choice in a URL's query. Raises ValueError that names the field, the value and what may stand there."""
        by = query.get("by") or "queue"
        if by not in BYS:
            raise ValueError(f"by: {by[:40]!r}: there is {', '.join(BYS)}")
        return cls(
            by=next(each for each in BYS if each == by), node=query.get("node") or "", group=query.get("group") or ""
        )

    def query(self, **changed: Any) -> str:
        """The choice as a URL's query, "" where everything is as usual."""
        made = replace(self, **changed)
        fields = {"by": "" if made.by == "queue" else made.by, "group": made.group, "node": made.node}
        kept = {name: value for name, value in fields.items() if value}
        return f"?{urlencode(kept)}" if kept else ""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`rack` "": of all nodes of the model."""

    model: str
    rack: str
    nodes: tuple[NodeView, ...]

    @property
    def key(self) -> str:
        """What an address calls it."""
        return f"{self.model}/{self.rack}"

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def free(self) -> int:
        return sum(node.of("free") for node in self.nodes)


def gangs_on(view: ClusterView) -> tuple[tuple[str, int], ...]:
    """Gangs that may be named, and how many GPUs or parts of one each holds, the largest first."""
    held = Counter(
        hold.gang
        for node in view.nodes
        for gpu in node.gpus
        for hold in (*gpu.holds, *(hold for part in gpu.parts for hold in part.holds))
    )
    return tuple(sorted(((gang, count) for gang, count in held.items() if gang), key=lambda each: (-each[1], each[0])))


def node_groups(view: ClusterView) -> tuple[NodeGroup, ...]:
    """By model, then by rack; nodes in their order."""
    by_model: dict[str, list[NodeView]] = {}
    for node in view.nodes:
        by_model.setdefault(_model(node), []).append(node)
    return tuple(
        group
        for model in sorted(by_model, key=natural)
        for group in _of_model(model, by_model[model], many=len(view.nodes) > RACKS)
    )


def _of_model(model: str, nodes: list[NodeView], *, many: bool) -> Iterable[NodeGroup]:
    if any(node.rack for node in nodes):
        ordered = sorted(nodes, key=lambda node: (not node.rack, natural(node.rack)))
        for rack, members in groupby(ordered, key=lambda node: node.rack):
            yield NodeGroup(model, rack or "no rack", tuple(members))
    elif not many:
        yield NodeGroup(model, "", tuple(nodes))
    else:
        for first in range(0, len(nodes), TOGETHER):
            some = tuple(nodes[first : first + TOGETHER])
            yield NodeGroup(model, f"{some[0].name} to {some[-1].name}", some)


def _model(node: NodeView) -> str:
    """The maker's name tells none apart and is left out."""
    return ", ".join(dict.fromkeys(gpu.product.removeprefix("NVIDIA ") or "GPU" for gpu in node.gpus))
