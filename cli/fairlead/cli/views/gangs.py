"""`fairlead gangs`: phase, position in the queue and reason of each gang, a line each.

From Gang status, and for gangs of one that never waited from their pods.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import time

from fairlead.cli.views import plain_pods, printing, reading
from fairlead.cli.views.line import Line
from fairlead.cli.views.table import Cell, Column
from fairlead.kube import resources, timestamps
from fairlead.kube.resources import Raw

PHASES = ("Waiting", "Gathering", "Admitted", "Running", "Finished", "Failed")
STYLES = {"Waiting": "yellow", "Gathering": "yellow", "Running": "green", "Failed": "red"}
NODES_SHOWN = 2


def line(raw: Raw, *, now: float) -> Line:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    phase = status.get("phase") or "Gathering"
    evicting, why = _why(status)
    return Line(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        phase=phase,
        queue=status.get("queue") or spec.get("queue") or "",
        position=status.get("position"),
        size=int(spec.get("size") or 1),
        members=int(status.get("members") or 0),
        ready=int(status.get("ready") or 0),
        nodes=tuple(status.get("nodes") or ()),
        age_s=max(0.0, now - timestamps.parse(meta["creationTimestamp"])) if meta.get("creationTimestamp") else 0.0,
        reason=status.get("reason") or "",
        evicting=evicting,
        why=why,
        forecast=forecast(status, now=now),
    )


def forecast(status: Raw, *, now: float) -> str:
    """`in 12m (p90 40m)`; "never" for a gang that cannot start; "" where nothing is forecast."""
    found = status.get("forecast") or {}
    if status.get("phase") != "Waiting" or not found:
        return ""
    if found.get("never"):
        return "never"
    if not found.get("p50"):
        return ""
    late = f" (p90 {age(max(0.0, timestamps.parse(found['p90']) - now))})" if found.get("p90") else ""
    return f"in {age(max(0.0, timestamps.parse(found['p50']) - now))}{late}"


def _why(status: Raw) -> tuple[str, str]:
    """The type and message of an eviction in progress or just done, else "" and the reason why the gang waits."""
    holding = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    eviction = holding.get("Evicting") or (holding.get("Evicted") if status.get("phase") == "Gathering" else None)
    if eviction is not None:
        return str(eviction["type"]), str(eviction.get("message") or "")
    if status.get("phase") in {"Running", "Finished"} and status.get("reason") in {"MembersRun", "PodsSucceeded"}:
        return "", ""
    return "", str((status.get("why") or {}).get("message") or status.get("message") or "")


def order(lines: Sequence[Line]) -> list[Line]:
    """By phase, waiting gangs first; then by position in the queue, namespace and name."""
    return sorted(
        lines,
        key=lambda each: (
            PHASES.index(each.phase) if each.phase in PHASES else len(PHASES),
            each.position or sys.maxsize,
            each.namespace,
            each.name,
        ),
    )


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


def age(seconds: float) -> str:
    """As kubectl prints ages: 45s, 12m, 3h, 2d."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def show(*, namespace: str | None, kubeconfig: Path | None, context: str | None, output: str) -> int:
    """Print the gangs of one namespace, or of all (None); returns the exit code."""

    async def look(cluster: reading.Cluster) -> list[Line]:
        found, now = await cluster.list(resources.GANGS, namespace), time()
        pods = await reading.list_if_allowed(cluster, resources.PODS, namespace)
        seen = [*(line(raw, now=now) for raw in found), *plain_pods.lines(pods, found, now=now)]
        if not seen and namespace is not None:
            await cluster.check_namespace(namespace)
        return seen

    code, found = reading.run(look, kubeconfig=kubeconfig, context=context)
    if found is None:
        return code
    lines = order(found)
    if output != "table":
        printing.structured([asdict(each) for each in lines], output)
    elif lines:
        first = 0 if namespace is None else 1
        printing.table(COLUMNS[first:], [row[first:] for row in rows(lines)])
    else:
        where = f"namespace {namespace}" if namespace else "any namespace"
        more = f"; all others: {reading.program()} gangs -A" if namespace else ""
        print(f"no gangs in {where}: no pod there asks for devices that Fairlead manages{more}", file=sys.stderr)
    return 0
