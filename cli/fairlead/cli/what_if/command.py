"""`fairlead what-if`: read, change, compare, print. Exit status: 0 printed, 1 the cluster or the change cannot be read."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.cli.views import printing
from fairlead.cli.what_if import changes
from fairlead.cli.what_if.report import as_json, show
from fairlead.controller.forecasting.history import RunHistory
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, ChangeError, Comparison, compare
from fairlead.engine.snapshot import Snapshot
from fairlead.history.facts import snapshot_file
from fairlead.history.facts.errors import FactsError
from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.reading.cluster import Cluster, list_if_allowed
from fairlead.ui.reading.errors import NotReadError

FIRST_S = 0.3  # of CPU, for each future of the first version of the table
BUDGET_S = 8.0  # of the last one
LARGE = 300  # gangs from which on there may be a first version


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags."""

    add_nodes: Sequence[str] = ()
    remove: Sequence[str] = ()
    queue: Sequence[str] = ()
    files: Sequence[Path] = ()
    horizon: str = "24h"
    samples: int = 1
    snapshot: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    drivers: tuple[str, ...] = (names.DRIVER,)
    output: str = "table"


@dataclass(kw_only=True)
class Seen:
    """What was read: the snapshot, its time, and what else the user may see of the cluster. `data`: the snapshot as a file."""

    snapshot: Snapshot
    now: float
    data: bytes = b""
    history: RunHistory = field(default_factory=RunHistory)
    templates: list[Raw] = field(default_factory=list)
    priority_classes: list[Raw] = field(default_factory=list)
    no_priority_classes: str = "a snapshot has none"  # why they are not known; "" where they are
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)


def run(asked: Asked) -> int:
    try:
        horizon_s = _horizon_s(asked.horizon)
        documents = _documents(asked.files)
    except (ChangeError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    gc.disable()  # of what is read nothing becomes free: each collection would look at all of it in vain, a fifth of the time
    try:
        return _read_and_compare(asked, documents, horizon_s)
    finally:
        gc.enable()


def _read_and_compare(asked: Asked, documents: Sequence[dict[str, Any]], horizon_s: float) -> int:
    code, seen = _read(asked)
    if seen is None:
        return code
    try:
        large = asked.output == "table" and len(seen.snapshot.gangs) + len(seen.snapshot.running) > LARGE
        if large and not seen.data:
            seen.data = snapshot_file.dump(seen.snapshot, seen.now)
        comparison = _compare(asked, seen, documents, horizon_s, quick=large)
        if large:
            show(comparison)
            gc.freeze()
            gc.enable()  # the simulations that follow may be long
            print("\nThat was a first look. With every gang decided on:\n", flush=True)
            seen.snapshot = snapshot_file.load(seen.data).snapshot  # the comparison changed it
            comparison = _compare(asked, seen, documents, horizon_s, quick=False)
    except ChangeError as error:
        print(error, file=sys.stderr)
        return 1
    if asked.output == "table":
        show(comparison)
    else:
        printing.structured(as_json(comparison, seen.now), asked.output)
    return 0


def _documents(files: Sequence[Path]) -> list[dict[str, Any]]:
    if not files:
        return []
    import yaml

    from fairlead.cli.checks.manifests import documents_of  # with the webhook: half a second

    try:
        return list(documents_of(files))
    except yaml.YAMLError as error:
        raise ChangeError(str(error)) from None


def _horizon_s(text: str) -> float:
    try:
        seconds = duration_s(text)
    except ValueError as error:
        raise ChangeError(f"--horizon: {error}") from None
    if seconds <= 0:
        raise ChangeError(f"--horizon {text}: nothing starts in no time; write how far to look ahead, such as 24h")
    return seconds


def _read(asked: Asked) -> tuple[int, Seen | None]:
    """Exit status, and what was read; messages go to standard error."""
    if asked.snapshot is not None:
        try:
            data = asked.snapshot.read_bytes()
            found = snapshot_file.load(data)
            return 0, Seen(snapshot=found.snapshot, now=found.now, data=data)
        except OSError as error:
            print(f"{asked.snapshot}: {error.strerror}", file=sys.stderr)
        except FactsError as error:
            print(f"{asked.snapshot}: {error}", file=sys.stderr)
        return 1, None

    from fairlead.cli import live_snapshot  # with the controller and the client: half a second
    from fairlead.cli.views import reading
    from fairlead.controller.forecasting import checkpoint

    async def look(cluster: Cluster) -> Seen:
        snapshot, now = await live_snapshot.read(cluster.client, asked.drivers)
        seen = Seen(snapshot=snapshot, now=now)
        with contextlib.suppress(NotReadError, ValueError):  # most users may not: then it goes without
            stored = await cluster.get(resources.CONFIG_MAPS, checkpoint.NAME, names.NAMESPACE)
            seen.history.restore(((stored or {}).get("data") or {}).get(checkpoint.KEY) or "{}")
        if asked.files:
            kind = {"kind": resources.RESOURCE_CLAIM_TEMPLATES.kind, "apiVersion": "resource.k8s.io/v1"}
            listed = await list_if_allowed(cluster, resources.RESOURCE_CLAIM_TEMPLATES)
            seen.templates = [{**raw, **kind} for raw in listed]
            try:
                seen.priority_classes = await cluster.list(resources.PRIORITY_CLASSES)
                seen.no_priority_classes = ""
            except NotReadError as error:
                seen.no_priority_classes = str(error)
            for raw in await list_if_allowed(cluster, resources.NAMESPACES):
                seen.namespaces[raw["metadata"]["name"]] = dict(raw["metadata"].get("labels") or {})
        return seen

    code, seen = reading.run(look, kubeconfig=asked.kubeconfig, context=asked.context)
    if seen is not None and not any(True for _ in seen.snapshot.inventory.pools_unordered()):
        print(
            "the cluster has no ResourceSlices, so no gang could start: no DRA driver publishes devices on it",
            file=sys.stderr,
        )
        return 1, None
    return code, seen


def _compare(
    asked: Asked, seen: Seen, documents: Sequence[dict[str, Any]], horizon_s: float, *, quick: bool
) -> Comparison:
    snapshot, now = seen.snapshot, seen.now
    change = Change(
        add=changes.new_nodes(asked.add_nodes, snapshot, asked.drivers),
        remove=tuple(dict.fromkeys(asked.remove)),
        queues=changes.queues(asked.queue, snapshot),
        submit=_submitted(asked, seen, documents),
    )
    seen.history.note(snapshot.gangs, snapshot.running, now, lambda _: False)
    return compare(
        snapshot,
        now,
        change,
        RunTimes(seen.history.records(now)),
        horizon_s=horizon_s,
        samples=asked.samples,
        budget_s=FIRST_S if quick else BUDGET_S,
        quick=quick,
        spent_s=_since(time.process_time()),
    )


def _since(began: float) -> Callable[[], float]:
    return lambda: time.process_time() - began


def _submitted(asked: Asked, seen: Seen, documents: Sequence[dict[str, Any]]) -> Any:
    if not asked.files:
        return ()
    from fairlead.cli.what_if import priorities, workloads
    from fairlead.webhook.offline import World

    world = World(drivers=asked.drivers, classes=dict(seen.snapshot.classes))
    for document in (*seen.templates, *documents):
        world.add(document)
    labels = {gang.namespace: dict(gang.namespace_labels) for gang in seen.snapshot.running}
    labels |= {gang.namespace: dict(gang.namespace_labels) for gang in seen.snapshot.gangs}
    labels |= seen.namespaces
    world.namespaces |= {name: each for name, each in labels.items() if name not in world.namespaces}
    known = priorities.read(documents, cluster=seen.priority_classes, unread=seen.no_priority_classes)
    return workloads.gangs(documents, world, {**labels, **world.namespaces}, known, seen.now)
