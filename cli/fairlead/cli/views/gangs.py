"""`fairlead gangs`: phase, position in the queue and reason of each gang, a line each.

From Gang status, and for gangs of one that never waited from their pods.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import time
from typing import Annotated

import typer

from fairlead.cli import printer, reading
from fairlead.cli.options import Namespace
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.kube import resources
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


def rows(lines: Sequence[Line]) -> list[list[Cell]]:
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
            Cell(_nodes(each.nodes)),
            Cell(f"{each.evicting or each.reason}: {each.why}" if each.why else each.reason),
        ]
        for each in lines
    ]


def _nodes(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_SHOWN
    return (",".join(nodes[:NODES_SHOWN]) + (f" +{more}" if more > 0 else "")) or "-"


@dataclass(frozen=True, kw_only=True)
class Gangs(Shown):
    """List gangs: phase, queue, place in line, pods, nodes, and why they wait."""

    namespace: Namespace = None
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False

    def run(self) -> None:
        namespace = None if self.everywhere else self.namespace or self.own_namespace

        async def look(cluster: Cluster) -> list[Line]:
            found, now = await cluster.list(resources.GANGS, namespace), time()
            pods = await list_if_allowed(cluster, resources.PODS, namespace)
            seen = [*(line(raw, now=now) for raw in found), *plain_pods.lines(pods, found, now=now)]
            if not seen and namespace is not None:
                await reading.check_namespace(cluster, namespace)
            return seen

        lines = order(self.ask(look))
        if self.output != "table":
            printer.structured([asdict(each) for each in lines], self.output)
        elif lines:
            first = 0 if namespace is None else 1
            printer.table(COLUMNS[first:], [row[first:] for row in rows(lines)])
        else:
            where = f"namespace {namespace}" if namespace else "any namespace"
            more = f"; all others: {reading.program()} gangs -A" if namespace else ""
            say(f"no gangs in {where}: no pod there asks for devices that Fairlead manages{more}", file=sys.stderr)
