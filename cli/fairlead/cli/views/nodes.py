"""`fairlead nodes`: nodes with GPUs, how many of them are in use, free and unavailable, and why nothing is placed on a node.

The figures are those of `fairlead top` and of the map; where claims may not be listed, what is in use is not known, and not called free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from fairlead.cli import completion
from fairlead.cli.listing import Listing, Row
from fairlead.cli.printer import Cell, Column
from fairlead.kube import resources
from fairlead.kube.resources import Resource
from fairlead.ui.model.cluster import GpuView, Memory, NodeView
from fairlead.ui.reading.cluster import Cluster, NotReadError
from fairlead.ui.reading.live import LiveSource

COLUMNS = (
    Column(title="NODE", least=12, most=40),
    Column(title="MODEL", least=8, most=32, dispensable=2),
    Column(title="GPUS", right=True),
    Column(title="IN USE", right=True),
    Column(title="FREE", right=True),
    Column(title="UNAVAILABLE", right=True),
    Column(title="QUEUES", least=8, most=40, dispensable=3),
    Column(title="PROBLEM", least=8, most=64, sentence=True, dispensable=1),
)


@dataclass(frozen=True, kw_only=True)
class Nodes(Listing):
    """List nodes with GPUs: how many are in use, free and unavailable, which queues hold them, and what is wrong."""

    kind: ClassVar[str] = "node with GPUs"
    watches: ClassVar[tuple[Resource[Any], ...]] = (
        resources.NODES,
        resources.RESOURCE_SLICES,
        resources.RESOURCE_CLAIMS,
    )

    names: Annotated[
        tuple[str, ...], typer.Argument(metavar="[NAME]...", help="Only these.", autocompletion=completion.nodes)
    ] = ()

    def columns(self) -> Sequence[Column]:
        return COLUMNS

    async def rows(self, cluster: Cluster) -> list[Row]:
        facts = await LiveSource(cluster.client, namespace=self.own_namespace).facts()
        if facts.hardware is None:
            raise NotReadError(facts.refused.get("nodes") or facts.refused["resourceslices"])
        unknown = facts.refused.get("resourceclaims", "")
        infos = facts.hardware.nodes
        return [
            _row(node, unknown, {} if (info := infos.get(node.name)) is None else info.labels)
            for node in sorted(Memory().draw(facts.hardware).nodes, key=lambda node: node.name)
        ]

    def none(self) -> str:
        return "no node has GPUs that a driver publishes; see `fairlead doctor`"

    def notes(self, rows: Sequence[Row]) -> Iterator[str]:
        yield from dict.fromkeys(
            f"what is in use is not known: {row.value['unknown']}" for row in rows if row.value["unknown"]
        )


def _row(node: NodeView, unknown: str, labels: Mapping[str, str]) -> Row:
    """`unknown`: why claims could not be listed; "" where they were."""
    models = [f"{count} x {name}" for name, count in Counter(gpu.product for gpu in node.gpus).items()]
    problem = node.problem or next((gpu.note for gpu in node.gpus if gpu.note), "")
    in_use, free, unavailable = (None if unknown else node.of(each) for each in ("in use", "free", "unavailable"))
    queues = sorted(filter(None, node.queues))
    value = {
        "name": node.name,
        "models": models,
        "gpus": len(node.gpus),
        "in_use": in_use,
        "free": free,
        "unavailable": unavailable,
        "queues": queues,
        "rack": node.rack,
        "problem": problem,
        "unknown": unknown,
        "devices": [_device(gpu, known=not unknown) for gpu in node.gpus],
    }
    counts = ("-" if each is None else str(each) for each in (in_use, free, unavailable))
    texts = (node.name, ", ".join(models), str(len(node.gpus)), *counts, ",".join(queues) or "-", problem or "-")
    return Row(
        name=node.name,
        reference=f"node/{node.name}",
        lines=[[Cell(text) for text in texts]],
        value=value,
        labels=(labels,),
    )


def _device(gpu: GpuView, *, known: bool) -> dict[str, Any]:
    held = (*gpu.holds, *(hold for part in gpu.parts for hold in part.holds))
    return {
        "name": gpu.name,
        "model": gpu.product,
        "state": gpu.state if known else None,
        "gangs": sorted({hold.gang for hold in held if hold.gang}),
        "note": gpu.note,
    }
