"""The objects of a cluster in which gangs run and wait, as an apiserver has them at one moment; and a client that serves them.

Whoever makes a cluster says what its gangs are (`GangMade`); devices are given to those that run in the order in which nodes
publish them. Times are unix seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.api import names, repair
from fairlead.api.claim_sources import ClaimSource, annotation
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, decision
from fairlead.kube import errors, timestamps
from fairlead.kube.resources import Raw, Resource
from tests.support.engine.objects import claim_spec, device_request, gpu, mig_gpu, slice_of
from tests.support.ui.apiserver import Apiserver

NOW = 1_800_000_000.0
NAMESPACE = "ml"
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"
MIG_PART = 'device.attributes["gpu.fairlead.dev"].?profile.orValue("") == "1g.10gb"'


@dataclass(frozen=True, kw_only=True)
class Held:
    by: str
    since: float
    reason: str = "maintenance"

    def raw(self) -> Raw:
        return {"by": self.by, "since": timestamps.seconds(self.since), "reason": self.reason}


class NoRoomError(ValueError):
    """A gang that is to run does not fit; the members made before it do run."""


@dataclass(frozen=True, kw_only=True)
class GangMade:
    """`size`: members that must run together. Of its pods `done` have succeeded, `run` run, and `waits` are gated.

    `evicted_in_s`: its eviction is set for so long from now, for gang `beneficiary`; `leaving`: its pods are on the way out.
    """

    name: str
    size: int = 1
    gpus: int = 1
    run: int = 0
    waits: int = 0
    done: int = 0
    queue: str = ""
    age_s: float = 600.0
    part: bool = False  # one MIG device each, in place of whole GPUs
    admin: bool = False  # admin access to devices
    selector: Mapping[str, str] = field(default_factory=dict)  # labels of nodes
    hold: Held | None = None
    priority: int = 0
    min_runtime: str = ""
    evicted_in_s: float | None = None
    beneficiary: str = ""
    leaving: bool = False
    plain: bool = False  # one pod whose claim the webhook named: it has no Gang object while it runs
    deadline_s: float | None = None  # of a Job that makes its pods: it ends so long after its creation


@dataclass
class ClusterMade:
    """`lists`: by plural."""

    now: float
    lists: dict[str, list[Raw]] = field(default_factory=lambda: defaultdict(list))
    _free: dict[str, list[str]] = field(default_factory=dict)  # whole GPUs, by node
    _free_parts: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lists["namespaces"] = [{"metadata": {"name": NAMESPACE, "labels": {"team": "ml"}}}]
        self.lists["deviceclasses"] = [
            {"metadata": {"name": names.GPU_CLASS}, "spec": {"selectors": [_cel('"gpu"')]}},
            {"metadata": {"name": names.MIG_CLASS}, "spec": {"selectors": [_cel('"mig"')]}},
        ]
        self.lists["flavors"] = [{"metadata": {"name": "gpu"}, "spec": {"deviceSelector": "true"}}]

    def node(
        self, name: str, gpus: int = 8, *, mig: bool = False, cordoned: bool = False, drained: Sequence[int] = ()
    ) -> None:
        labels = {"kubernetes.io/hostname": name, "pool": "mig" if mig else "whole"}
        self.lists["nodes"].append(
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"unschedulable": True} if cordoned else {},
                "status": {
                    "allocatable": {"cpu": "512", "memory": "2Ti", "pods": "500"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        made = [mig_gpu(minor) if mig else ([gpu(minor, product=H100)], None) for minor in range(gpus)]
        devices = [each for found, _ in made for each in found]
        counters = [sets for _, sets in made if sets is not None]
        self.lists["resourceslices"] += slice_of(name, devices, counters=counters)
        for minor in drained:
            selector = {"driver": names.DRIVER, "pool": name, "device": f"gpu-{minor}"}
            taint = {"key": repair.DRAIN_TAINT, "effect": "NoSchedule"}
            rule = {
                "metadata": {"name": f"drained-{name}-{minor}"},
                "spec": {"deviceSelector": selector, "taint": taint},
            }
            self.lists["devicetaintrules"].append(rule)
        usable = [minor for minor in range(gpus) if minor not in drained]
        cut = usable[:1] if mig else []
        self._free[name] = [f"gpu-{minor}" for minor in usable if minor not in cut]
        self._free_parts[name] = [f"gpu-{minor}-mig-1g-10gb-{start}" for minor in cut for start in range(7)]

    def queue(self, name: str, deserved: int = 0, *, hold: Held | None = None, **spec: Any) -> None:
        flavors = [{"flavor": "gpu", "deserved": deserved} | ({"limit": spec.pop("limit")} if "limit" in spec else {})]
        held = {} if hold is None else {"hold": hold.raw()}
        self.lists["queues"].append(
            {"metadata": {"name": name, "generation": 1}, "spec": {"flavors": flavors, **held, **spec}}
        )

    def gang(self, made: GangMade) -> None:
        mark = self._mark(made)
        states = ["Succeeded"] * made.done + ["Running"] * made.run + ["Pending"] * made.waits
        owner = None if made.deadline_s is None else self._job(made, len(states))
        template = {"metadata": self._meta(f"of-{made.name}", made.age_s), "spec": {"spec": _spec(made)}}
        self.lists["resourceclaimtemplates"].append(template)
        for number, phase in enumerate(states):
            self._pod(made, made.name if made.plain else f"{made.name}-{number}", phase, mark, owner)
        spec: Raw = {"size": made.size} | ({} if made.hold is None else {"hold": made.hold.raw()})
        raw: Raw = {"metadata": self._meta(made.name, made.age_s) | {"generation": 1}, "spec": spec}
        if mark is not None:
            raw["status"] = {"evictions": [decision(mark).to_json()]}
        if mark is not None or made.hold is not None:
            self.lists["gangs"].append(raw)

    def _mark(self, made: GangMade) -> EvictionMark | None:
        if made.evicted_in_s is None:
            return None
        at = float(int(self.now + made.evicted_in_s))
        return EvictionMark(kind="Preempt", at=at, whole=True, beneficiary=made.beneficiary, why="it has less priority")

    def _job(self, made: GangMade, pods: int) -> Raw:
        meta = self._meta(f"job-{made.name}", made.age_s)
        template = {"metadata": {"annotations": self._notes(made)}, "spec": {"containers": [{"name": "main"}]}}
        spec = {
            "parallelism": pods,
            "completions": pods,
            "activeDeadlineSeconds": int(made.deadline_s or 0),
            "template": template,
        }
        status = {"startTime": meta["creationTimestamp"], "active": pods}
        self.lists["jobs"].append({"metadata": meta, "spec": spec, "status": status})
        return {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}

    def _notes(self, made: GangMade) -> dict[str, str]:
        notes = {names.GANG: made.name, names.GANG_SIZE: str(made.size)}
        if made.plain:
            source = ClaimSource(claim=f"{made.name}-gpu", template=f"of-{made.name}", uid=f"uid-of-{made.name}")
            notes = {names.CLAIM_SOURCES: annotation({"gpu": source}, namespace=NAMESPACE, owner_uid="", key=b"")}
        queue = {names.QUEUE: made.queue} if made.queue else {}
        return notes | queue | ({names.MIN_RUNTIME: made.min_runtime} if made.min_runtime else {})

    def _meta(self, name: str, age_s: float) -> Raw:
        created = timestamps.seconds(self.now - age_s)
        return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": created}

    def _pod(self, made: GangMade, name: str, phase: str, mark: EvictionMark | None, owner: Raw | None) -> None:
        meta = self._meta(name, made.age_s) | {"annotations": self._notes(made)}
        if owner is not None:
            meta["ownerReferences"] = [owner]
        waits = phase == "Pending"
        template = {"resourceClaimTemplateName": f"of-{made.name}"}
        use = {"resourceClaimName": f"{name}-gpu"} if made.plain else template
        node, devices = (None, []) if waits else self._taken(made)
        if node is not None and phase == "Succeeded":
            self._give_back(node, devices)
        if mark is not None and phase == "Running":
            meta["annotations"] |= mark.annotations()
        if made.leaving and phase == "Running":
            meta |= {"deletionTimestamp": timestamps.seconds(self.now - 5), "deletionGracePeriodSeconds": 30}
        pod = {
            "metadata": meta,
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
                "restartPolicy": "Never",
                "priority": made.priority,
                "nodeSelector": dict(made.selector),
                "schedulingGates": [{"name": names.ADMISSION_GATE}] if waits else [],
                "resourceClaims": [{"name": "gpu", **use}],
                **({} if node is None else {"nodeName": node}),
            },
            "status": {"phase": phase, "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]},
        }
        self.lists["pods"].append(pod)
        self._claim(made, name, node if phase == "Running" else None, devices)

    def _claim(self, made: GangMade, pod: str, node: str | None, devices: Sequence[str]) -> None:
        more = {"adminAccess": True} if made.admin else {}
        meta = self._meta(f"{pod}-gpu", made.age_s)
        meta["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
        ]
        meta["annotations"] = {names.POD_CLAIM_NAME: "gpu"}
        claim: Raw = {"metadata": meta, "spec": _spec(made), "status": {}}
        if node is not None:
            results = [
                {"request": "r0", "driver": names.DRIVER, "pool": node, "device": each, **more} for each in devices
            ]
            where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            claim["status"] = {
                "allocation": {
                    "devices": {"results": results},
                    "nodeSelector": {"nodeSelectorTerms": [where]},
                    "allocationTimestamp": timestamps.seconds(self.now - made.age_s / 2),
                },
                "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}],
            }
        self.lists["resourceclaims"].append(claim)

    def _taken(self, made: GangMade) -> tuple[str, list[str]]:
        count = 1 if made.part else made.gpus
        for node, free in (self._free_parts if made.part else self._free).items():
            if len(free) >= count:
                taken = free[:count]
                if not made.admin:
                    del free[:count]
                return node, taken
        raise NoRoomError(f"gang {made.name}: no node has {count} devices left")

    def _give_back(self, node: str, devices: Sequence[str]) -> None:
        free = (self._free_parts if devices[0].partition("-mig-")[1] else self._free)[node]
        free[:0] = devices


def _spec(made: GangMade) -> Raw:
    """Of each member's claim."""
    count, kind = (1, names.MIG_CLASS) if made.part else (made.gpus, names.GPU_CLASS)
    more = {"adminAccess": True} if made.admin else {}
    return claim_spec(device_request(count, device_class=kind, cel=MIG_PART if made.part else (), **more))


def _cel(kind: str) -> Raw:
    return {
        "cel": {
            "expression": f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].type == {kind}'
        }
    }


class WritableApiserver(Apiserver):
    """Statuses and Events are written, and seen by those who list; every other write waits for ever: the cluster stays as it is."""

    KEPT = frozenset({"gangs", "queues", "flavors", "events"})

    def __init__(self, lists: dict[str, list[Raw]]) -> None:
        super().__init__(lists, rules="v1beta2")
        self.now = 0.0

    def guarded(self, *_: Any, **__: Any) -> WritableApiserver:
        return self

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method != "GET":
            await _for_ever()
        return await super().request(method, path, **more)

    async def create(self, resource: Resource[Any], body: Raw, namespace: str | None = None, **_: Any) -> Any:
        if resource.plural not in self.KEPT:
            await _for_ever()
        meta = {
            "creationTimestamp": timestamps.seconds(self.now),
            "namespace": namespace or "",
            "generation": 1,
        } | body["metadata"]
        return self.put(resource.plural, {**body, "metadata": meta})

    async def patch(
        self, resource: Resource[Any], name: str, body: Raw, *, namespace: str = "", subresource: str = "", **_: Any
    ) -> Any:
        if resource.plural not in self.KEPT:
            await _for_ever()
        raw = next(each for each in self.lists[resource.plural] if _is(each, namespace, name))
        return self.put(resource.plural, _merged(json.loads(json.dumps(raw)), body))

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        found = next((each for each in self.lists[resource.plural] if _is(each, namespace or "", name)), None)
        if found is None:
            raise errors.NotFound(f"{resource.plural} {name}")
        return found

    async def delete(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        await _for_ever()


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _is(raw: Raw, namespace: str, name: str) -> bool:
    return bool(raw["metadata"]["name"] == name and raw["metadata"].get("namespace", "") == namespace)


def _merged(raw: Raw, patch: Raw) -> Raw:
    """RFC 7386, but for the resourceVersion, which is a precondition."""
    found = dict(raw)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = _merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found
