"""`fairlead gangs`: who runs, who waits, where in line, and why, a line each. From Gang status alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time

from rich.table import Table

from fairlead.cli import reading
from fairlead.cli.queues import console
from fairlead.kube import resources, timestamps
from fairlead.kube.resources import Raw

PHASES = ("Waiting", "Gathering", "Admitted", "Running", "Finished", "Failed")
STYLES = {"Waiting": "yellow", "Gathering": "yellow", "Running": "green", "Failed": "red"}
WHY_MAX = 100
NODES_SHOWN = 2


@dataclass(frozen=True, kw_only=True)
class Line:
    namespace: str
    name: str
    phase: str
    queue: str
    position: int | None
    size: int
    members: int
    ready: int
    nodes: tuple[str, ...]
    age_s: float
    reason: str
    why: str  # in one sentence


def line(raw: Raw, *, now: float) -> Line:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    phase = status.get("phase") or "Gathering"
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
        why=_why(status),
    )


def _why(status: Raw) -> str:
    """What is most worth knowing: an eviction under way, else why it waits."""
    holding = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    told = holding.get("Evicting") or (holding.get("Evicted") if status.get("phase") == "Gathering" else None)
    if told is not None:
        return str(told.get("message") or "")
    if status.get("phase") in {"Running", "Finished"} and status.get("reason") in {"MembersRun", "PodsSucceeded"}:
        return ""
    return str((status.get("why") or {}).get("message") or status.get("message") or "")


def order(lines: Sequence[Line]) -> list[Line]:
    """Waiting ones first, in their order; then by name."""
    return sorted(
        lines,
        key=lambda each: (
            PHASES.index(each.phase) if each.phase in PHASES else len(PHASES),
            each.position or sys.maxsize,
            each.namespace,
            each.name,
        ),
    )


def table(lines: Sequence[Line], *, namespaced: bool) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    columns = [*(() if namespaced else ("NAMESPACE",)), "GANG", "PHASE", "QUEUE", "POS", "PODS", "AGE", "NODES"]
    for column in columns:
        made.add_column(column, no_wrap=True, justify="right" if column in {"POS", "PODS", "AGE"} else "left")
    made.add_column("WHY", overflow="ellipsis", no_wrap=True)
    for each in lines:
        style = STYLES.get(each.phase, "")
        made.add_row(
            *(() if namespaced else (each.namespace,)),
            each.name,
            f"[{style}]{each.phase}[/{style}]" if style else each.phase,
            each.queue or "-",
            str(each.position) if each.position else "-",
            f"{each.ready}/{each.size}" + (f" +{each.members - each.size}" if each.members > each.size else ""),
            age(each.age_s),
            _nodes(each.nodes),
            f"{each.reason}: {_short(each.why)}" if each.why else each.reason,
        )
    return made


def _nodes(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_SHOWN
    return (",".join(nodes[:NODES_SHOWN]) + (f" +{more}" if more > 0 else "")) or "-"


def _short(text: str) -> str:
    return text if len(text) <= WHY_MAX else text[: WHY_MAX - 1] + "…"


def age(seconds: float) -> str:
    """As kubectl prints ages: 45s, 12m, 3h, 2d."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def show(*, namespace: str | None, kubeconfig: Path | None, context: str | None, output: str) -> int:
    """Prints the gangs of one namespace, or of all (None); the exit code."""
    code, found = reading.run(
        lambda cluster: cluster.list(resources.GANGS, namespace), kubeconfig=kubeconfig, context=context
    )
    if found is None:
        return code
    lines = order([line(raw, now=time()) for raw in found])
    if output == "json":
        print(json.dumps([asdict(each) for each in lines], indent=2))
    elif lines:
        console().print(table(lines, namespaced=namespace is not None))
    else:
        where = f"namespace {namespace}" if namespace else "any namespace"
        print(f"no gangs in {where}: no pod there asks for devices that Fairlead manages", file=sys.stderr)
    return 0
