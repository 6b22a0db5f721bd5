"""`fairlead gangs`: phase, position in the queue and reason of each gang, a line each.

From Gang status, and for gangs of one that never waited from their pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import time
from typing import Annotated, Any, ClassVar

import typer

from fairlead.cli import completion, reading
from fairlead.cli.listing import Listing, Row
from fairlead.cli.options import Namespace
from fairlead.cli.printer import Cell, Column
from fairlead.kube import resources
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.model import plain_pods
from fairlead.ui.model.gangs import Line, age, line, order
from fairlead.ui.reading.cluster import Cluster, list_if_allowed

STYLES = {"Waiting": "yellow", "Gathering": "yellow", "Evicted": "yellow", "Running": "green", "Failed": "red"}
NODES_SHOWN = 2


COLUMNS = (
    Column(title="NAMESPACE", least=12, most=32),
    Column(title="GANG", least=16, most=48),
    Column(title="PHASE"),
    Column(title="QUEUE", least=10, most=32, dispensable=3),
    Column(title="POS", right=True),
    Column(title="PODS", right=True),
    Column(title="AGE", right=True, dispensable=2),
    Column(title="FORECAST", dispensable=4),
    Column(title="NODES", least=12, most=36, dispensable=1),
    Column(title="WHY", least=24, sentence=True),
)


def rows(lines: Sequence[Line], *, full: bool = False) -> list[list[Cell]]:
    """`full`: with all nodes."""
    return [
        [
            Cell(each.namespace),
            Cell(each.name),
            Cell(each.phase, STYLES.get(each.phase, "")),
            Cell(each.queue or "-"),
            Cell(str(each.position) if each.position else "-"),
            Cell(f"{each.ready}/{each.size}" + (f" +{each.members - each.size}" if each.members > each.size else "")),
            Cell(age(each.age_s)),
            Cell(each.forecast or "-"),
            Cell(_nodes(each.nodes, len(each.nodes) if full else NODES_SHOWN)),
            Cell(f"{each.evicting or each.reason}: {each.why}" if each.why else each.reason),
        ]
        for each in lines
    ]


def _nodes(nodes: Sequence[str], most: int) -> str:
    more = len(nodes) - most
    return (",".join(nodes[:most]) + (f" +{more}" if more > 0 else "")) or "-"


@dataclass(frozen=True, kw_only=True)
class Gangs(Listing):
    """List gangs: phase, queue, place in line, pods, nodes, and why they wait."""

    kind: ClassVar[str] = "gang"
    watches: ClassVar[tuple[Resource[Any], ...]] = (resources.GANGS, resources.PODS)

    names: Annotated[
        tuple[str, ...], typer.Argument(metavar="[NAME]...", help="Only these.", autocompletion=completion.gangs)
    ] = ()
    namespace: Namespace = None
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False

    @property
    def where(self) -> str | None:
        return None if self.everywhere else self.namespace or self.own_namespace

    def columns(self) -> Sequence[Column]:
        return COLUMNS if self.where is None else COLUMNS[1:]

    async def rows(self, cluster: Cluster) -> list[Row]:
        """A gang has the labels of its pods, too: users label pod templates."""
        namespace = self.where
        found, now = await cluster.list(resources.GANGS, namespace), time()
        pods = await list_if_allowed(cluster, resources.PODS, namespace)
        lines = order([*(line(raw, now=now) for raw in found), *plain_pods.lines(pods, found, now=now)])
        if not lines and namespace is not None:
            await reading.check_namespace(cluster, namespace)
        labels = _labels(found, pods) if self.selector.requirements else {}
        gangs = {(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]) for raw in found}
        first, full = 0 if namespace is None else 1, self.output.kind == "wide"
        return [
            Row(
                name=each.name,
                reference=f"{'gang.fairlead.dev' if (each.namespace, each.name) in gangs else 'pod'}/{each.name}",
                lines=[row[first:]],
                value=asdict(each),
                labels=labels.get((each.namespace, each.name), ()),
            )
            for each, row in zip(lines, rows(lines, full=full), strict=True)
        ]

    def none(self) -> str:
        where = f"namespace {self.where}" if self.where else "any namespace"
        more = f"; all others: {reading.program()} gangs -A" if self.where else ""
        return f"no gangs in {where}: no pod there asks for devices that Fairlead manages{more}"


def _labels(gangs: Iterable[Raw], pods: Iterable[Raw]) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Of each gang the labels of each of its pods, with those of its Gang."""
    own = {(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]): _own(raw) for raw in gangs}
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for pod in pods:
        key = (pod["metadata"]["namespace"], plain_pods.gang_of(pod))
        found.setdefault(key, []).append({**_own(pod), **own.get(key, {})})
    return {key: [labels] for key, labels in own.items()} | found


def _own(raw: Raw) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}
