"""Clusters in zones, pods that run there, and the terms under which pods stand to others."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Reason
from fairlead.kube import core
from tests.support.engine.objects import claim_spec, device_request, gpu
from tests.support.engine.world import World

Json = dict[str, Any]
ONE = claim_spec(device_request())
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
X = {"app": "x"}


def term(key: str, app: str = "x", **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread(key: str, *, selector: Json | None = None, **more: Any) -> Json:
    wanted = {"matchLabels": X} if selector is None else selector
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": wanted}
    return {"topologySpreadConstraints": [constraint | more]}


def world(zones: str = "aabb", *, gpus: int = 8) -> World:
    """A node per letter, in the zone of that name; "-" has none."""
    found = World()
    for number, zone in enumerate(zones):
        labels = {HOST: f"n{number}"} | ({ZONE: zone} if zone != "-" else {})
        found.add_node(f"n{number}", [gpu(minor) for minor in range(gpus)], labels=labels)
    return found


_uids = count()


def run(
    where: World,
    node: str,
    labels: dict[str, str] | None = None,
    *,
    namespace: str = "ml",
    deleted: bool = False,
    **spec: Any,
) -> str:
    """A pod that is none of ours runs there; returns its UID."""
    uid = f"other-{next(_uids)}"
    meta: Json = {"name": uid, "namespace": namespace, "uid": uid, "labels": labels or {}}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body = {"metadata": meta, "spec": {"nodeName": node, "containers": [], **spec}}
    where.nodes.set_pod(msgspec.convert(body, core.Pod))
    return uid


def reason(plan: Plan, name: str) -> Reason:
    return next(entry.reason for entry in plan.waiting if entry.name == name)


POD_TERMS: tuple[Json, ...] = (
    {},
    {},
    apart(term(HOST)),
    apart(term(ZONE)),
    apart(term(ZONE, "y")),
    near(term(ZONE)),
    near(term(ZONE, "y")),
    spread(ZONE),
    spread(HOST, maxSkew=2),
    spread(ZONE, minDomains=2) | apart(term(HOST)),
)
