"""What is read for an answer: a snapshot, of a file or of a cluster with the reader's own rights, and what else of it may be read."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.api import names
from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.controller.forecasting.history import KEY, NAME, RunHistory
from fairlead.engine.snapshot import Snapshot
from fairlead.history.facts import snapshot_file
from fairlead.history.facts.form import FactsError
from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.reading.cluster import Cluster, NotReadError, list_if_allowed
from fairlead.ui.what_if.question import Question


@dataclass(kw_only=True)
class World:
    """The snapshot, its time, and what else the user may see of the cluster. `data`: the snapshot as a file."""

    snapshot: Snapshot
    now: float
    data: bytes = b""
    history: RunHistory = field(default_factory=RunHistory)
    templates: list[Raw] = field(default_factory=list)
    priority_classes: list[Raw] = field(default_factory=list)
    no_priority_classes: str = "a snapshot has none"  # why they are not known; "" where they are
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    policies: list[Raw] = field(default_factory=list)  # TenancyPolicies
    queues: list[Raw] = field(default_factory=list)  # Queues, for what the snapshot does not have of them


def of_file(path: Path) -> World:
    """Raises NotReadError."""
    try:
        data = files.unpacked(path)
        found = snapshot_file.load(data)
    except OSError as error:
        raise NotReadError(f"{path}: {error.strerror}") from error
    except (FactsError, UnreadableError) as error:
        raise NotReadError(f"{path}: {error}") from error
    return World(snapshot=found.snapshot, now=found.now, data=data)


async def of_cluster(cluster: Cluster, question: Question) -> World:
    """Raises NotReadError."""
    from fairlead.ui.reading.live import read_snapshot  # with the controller and the client: half a second

    snapshot, now = await read_snapshot(cluster.client, question.drivers, question.shared_drivers)
    if not any(True for _ in snapshot.inventory.pools_unordered()):
        raise NotReadError(
            "the cluster has no ResourceSlices, so no gang could start: no DRA driver publishes devices on it"
        )
    world = World(snapshot=snapshot, now=now)
    with contextlib.suppress(NotReadError, ValueError):  # most users may not: then it goes without
        stored = await cluster.get(resources.CONFIG_MAPS, NAME, names.NAMESPACE)
        world.history.restore(((stored or {}).get("data") or {}).get(KEY) or "{}")
    if question.submit:
        kind = {"kind": resources.RESOURCE_CLAIM_TEMPLATES.kind, "apiVersion": "resource.k8s.io/v1"}
        listed = await list_if_allowed(cluster, resources.RESOURCE_CLAIM_TEMPLATES)
        world.templates = [{**raw, **kind} for raw in listed]
        try:
            world.priority_classes = await cluster.list(resources.PRIORITY_CLASSES)
            world.no_priority_classes = ""
        except NotReadError as error:
            world.no_priority_classes = str(error)
        for raw in await list_if_allowed(cluster, resources.NAMESPACES):
            world.namespaces[raw["metadata"]["name"]] = dict(raw["metadata"].get("labels") or {})
        world.policies = await list_if_allowed(cluster, resources.TENANCY_POLICIES)
        world.queues = await list_if_allowed(cluster, resources.QUEUES)
    return world
