"""A small cluster as informers deliver it, with anything in any field: read into the controller's tables and gangs, and decided on.

What one user wrote may cost that user's gang its turn: the controller contains it there (`Caches.refresh`, `GangReconciler`, the handlers of
a `Store`). What it does not contain must not raise at all: the informers' own indexes, settings, quotas and the decision, which is everybody's.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.admission.requests import (
    GangRecord,
    blocking_problem,
    claims_awaited_until,
    gang_request,
)
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.held import leaving, vacancies
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.report.gang_phase import summarize
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.other_systems import terms
from fairlead.engine.plan.decide import decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.kube import listing, resource
from fairlead.kube.informer import Informer
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.target import Target
from tests.fuzz.targets import webhook
from tests.fuzz.targets.apiserver import KINDS

NOW = 1_800_000_000.0
_INFORMERS = {
    "Pod": "pods", "ResourceClaim": "claims", "ResourceClaimTemplate": "templates", "ResourceSlice": "slices", "DeviceClass": "device_classes", "Node": "nodes",
    "Namespace": "namespaces", "Queue": "queues", "Flavor": "flavors", "TenancyPolicy": "policies", "Gang": "gang_objects", "PodDisruptionBudget": "disruption_budgets",
    "ResourceQuota": "resource_quotas", "Job": "jobs",
}  # fmt: skip
_contained = functools.partial(contextlib.suppress, ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""As the controller contains one gang's fault. RecursionError and MemoryError end more than a gang."""


def _meta(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "creationTimestamp": "2027-01-15T07:59:00Z",
    } | more


def _cluster() -> list[dict[str, Any]]:
    driver = names.DRIVER
    class_spec = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}], "config": []}
    request = {
        "name": "r",
        "exactly": {
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": f"device.attributes['{driver}'].type == 'gpu'"}}],
            "count": 1,
            "allocationMode": "ExactCount",
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    }
    claim_spec = {
        "devices": {
            "requests": [request],
            "constraints": [{"requests": ["r"], "matchAttribute": f"{driver}/rack"}],
            "config": [],
        }
    }
    devices = [
        {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}, "rack": {"string": "a"}, "v": {"version": "1.2.3"}}, "capacity": {"memory": {"value": "80Gi"}}, "taints": [{"key": "t", "effect": "NoSchedule", "timeAdded": "2027-01-15T07:59:00Z"}] if n == 3 else [],
         "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "10"}}}], "allowMultipleAllocations": n == 2}
        for n in range(4)
    ]  # fmt: skip
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    allocation = {
        "devices": {"results": [{"request": "r", "driver": driver, "pool": "n1", "device": "gpu-0"}], "config": []},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        },
        "allocationTimestamp": "2027-01-15T07:59:00Z",
    }
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 2}, "claims": [{"name": "gpu"}]},
    }
    gated = {"containers": [container], "schedulingGates": [{"name": names.ADMISSION_GATE}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}], "priority": 5, "tolerations": [{"key": "a", "operator": "Exists"}], "nodeSelector": {"zone": "z"}, "activeDeadlineSeconds": 3600, "terminationGracePeriodSeconds": 30,
             "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["3"]}]}]}}}}  # fmt: skip
    notes = {names.GANG: "g", names.GANG_SIZE: "2", names.QUEUE: "team", names.MIN_RUNTIME: "1h"}
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]
    solo = gated | {"affinity": None, "nodeSelector": {}, "tolerations": []}
    running_status = {
        "phase": "Running",
        "startTime": "2027-01-15T07:59:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:59:00Z"}],
        "containerStatuses": [
            {"name": "c", "ready": True, "state": {"terminated": {"finishedAt": "2027-01-15T07:59:00Z"}}}
        ],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "held"}],
    }
    found: list[tuple[str, dict[str, Any]]] = [
        ("Namespace", {"metadata": _meta("ml", namespace="", labels={"team": "a"}), "status": {"phase": "Active"}}),
        ("Node", {"metadata": _meta("n1", namespace="", labels={"zone": "z", "n": "4", "kubernetes.io/hostname": "n1"}), "spec": {"unschedulable": False, "taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}, "capacity": {"cpu": "64"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        ("DeviceClass", {"metadata": _meta("gpu", namespace=""), "spec": class_spec}),
        ("ResourceSlice", {"metadata": _meta("s", namespace="", generation=1), "spec": {"driver": driver, "nodeName": "n1", "pool": pool, "devices": devices, "sharedCounters": [{"name": "c", "counters": {"m": {"value": "40"}}}]}}),
        ("Queue", {"apiVersion": names.API_VERSION, "metadata": _meta("team", namespace=""), "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}, "weight": 2, "flavors": [{"flavor": "f", "deserved": "2", "limit": "8"}], "minRuntime": "10m"}, "status": {"conditions": [], "usage": []}}),
        ("Flavor", {"apiVersion": names.API_VERSION, "metadata": _meta("f", namespace=""), "spec": {"selector": f"device.driver == '{driver}'"}}),
        ("TenancyPolicy", {"apiVersion": names.API_VERSION, "metadata": _meta("p", namespace=""), "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}, "maxMinRuntime": "2h"}}),
        ("ResourceQuota", {"metadata": _meta("q"), "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "4", "requests.cpu": "100", "count/resourceclaims.resource.k8s.io": 10}}, "status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "4"}, "used": {"gpu.deviceclass.resource.k8s.io/devices": "1"}}}),
        ("PodDisruptionBudget", {"metadata": _meta("b"), "spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": "50%", "maxUnavailable": 1}, "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}}),
        ("ResourceClaimTemplate", {"metadata": _meta("t"), "spec": {"spec": claim_spec}}),
        ("Job", {"metadata": _meta("j"), "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "activeDeadlineSeconds": 7200, "template": {"metadata": {"annotations": notes}}}, "status": {"startTime": "2027-01-15T07:59:00Z", "completedIndexes": "0,2-3", "failedIndexes": "1", "succeeded": 1, "conditions": [{"type": "Failed", "status": "False"}], "uncountedTerminatedPods": {"succeeded": ["u"]}}}),
        ("Gang", {"apiVersion": names.API_VERSION, "metadata": _meta("g"), "spec": {"size": 2}, "status": {"phase": "Waiting", "conditions": [{"type": "Evicted", "status": "True", "reason": "Reclaim", "message": "x", "lastTransitionTime": "2027-01-15T07:59:00Z"}], "queuedSince": "2027-01-15T07:00:00Z", "evictions": 1, "owner": "uid-j"}}),
        ("ResourceClaim", {"metadata": _meta("c0", ownerReferences=[{"kind": "Pod", "name": "p0", "uid": "uid-p0", "controller": True}], annotations={names.POD_CLAIM_NAME: "gpu"}), "spec": claim_spec, "status": {}}),
        ("ResourceClaim", {"metadata": _meta("held", ownerReferences=[{"kind": "Pod", "name": "r0", "uid": "uid-r0", "controller": True}], annotations={names.POD_CLAIM_NAME: "gpu"}), "spec": claim_spec, "status": {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "r0", "uid": "uid-r0"}]}}),
        ("Pod", {"metadata": _meta("p0", annotations=notes | {"batch.kubernetes.io/job-completion-index": "0"}, ownerReferences=owner, labels={"app": "x"}), "spec": gated, "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c0"}], "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
        ("Pod", {"metadata": _meta("p1", annotations=notes, ownerReferences=owner), "spec": gated, "status": {"phase": "Pending"}}),
        ("Pod", {"metadata": _meta("s0", annotations={names.QUEUE: "team"}), "spec": solo, "status": {"phase": "Pending"}}),
        ("Pod", {"metadata": _meta("r0", annotations={names.QUEUE: "team"}, labels={"app": "x"}, deletionTimestamp=None), "spec": solo | {"schedulingGates": [], "nodeName": "n1"}, "status": running_status}),
        ("DeviceTaintRule", {"metadata": _meta("d", namespace=""), "spec": {"deviceSelector": {"driver": driver, "pool": "n1", "device": "gpu-1"}, "taint": {"key": "x", "effect": "NoExecute"}}}),
        ("PodGroup", {"metadata": _meta("g"), "spec": {"minMember": 2, "queue": "team", "schedulingPolicy": {"gang": {"minCount": 2}}, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}}),
    ]  # fmt: skip
    return [{"kind": kind} | document for kind, document in found]


def _fed(caches: Caches, document: Any) -> None:
    """One object, as the informer of its kind takes it."""
    kind = document.get("kind") if isinstance(document, dict) else None
    body = msgspec.json.encode(document)
    if kind == "PodGroup":
        with _contained():
            for api in ("scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io", "scheduling.run.ai"):
                terms(api, listing.decoder(dict).decode(body))
    elif kind == "DeviceTaintRule":
        with contextlib.suppress(msgspec.MsgspecError):
            caches.tables.set_taint_rule(listing.decoder(resource.DeviceTaintRule).decode(body))
    elif isinstance(kind, str) and kind in _INFORMERS:
        informer: Informer[Any] = getattr(caches, _INFORMERS[kind])
        try:
            found = listing.decoder(KINDS[kind].type).decode(body)
        except msgspec.MsgspecError:
            return
        informer._set(found)


def _looked_at(caches: Caches, gang: Gang) -> tuple[GangRequest | None, RunningGang | None]:
    """What a reconciliation reads of one gang; contained in the controller, as here."""
    labels = caches.namespace_labels(gang.namespace)
    request: GangRequest | None = None
    running: RunningGang | None = None
    with _contained():
        past = caches.records.past_eviction(gang, NOW)
        record = GangRecord(queued_since=past.queued_since if past else None)
        bounds = caches.rules.bounds(gang)
        context = RunningContext(
            budgets_of=lambda member: caches.lookup.budgets_of(member.pod),
            job_deadline=lambda member: caches.lookup.job_deadline(member.pod),
            bounds=bounds,
        )
        running = running_gang(gang, record, labels, context)
        limited = caches.tables.namespace_quotas.limited(gang.namespace)
        if gang.gated and blocking_problem(gang) is None:
            claims_awaited_until(gang)
            request = gang_request(gang, record, labels, limited=limited, classes=caches.tables.classes)
    with _contained():
        recovery.next_step(gang, now=NOW, timeout_s=60.0, tried={}, node_exists=caches.node_exists)
        recovery.next_deadline(gang, 60.0, {})
        eviction_marks.marked(gang)
        leaving.description(leaving.holding(gang), 60.0)
        for member in gang.members:
            vacancies.vacancy_of(member)
        summarize(gang, SchedulingState())
    return request, running


def views(scratch: Path) -> Target:
    source: Any = None

    def run(data: bytes) -> None:
        try:
            documents = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            return
        caches = Caches(source, (names.DRIVER,))
        for document in documents if isinstance(documents, list) else [documents]:
            with contextlib.suppress(RecursionError, OverflowError):  # of this encoder: bytes come from an apiserver
                _fed(caches, document)
        caches.refresh()
        seen = [_looked_at(caches, gang) for gang in caches.gangs.values() if gang.members]
        settings, tables = caches.rules.settings(), caches.tables
        snapshot = Snapshot(
            inventory=tables.inventory,
            nodes=tables.nodes,
            classes=dict(tables.classes),
            gangs=tuple(
                sorted((request for request, _ in seen if request is not None), key=lambda request: request.id)
            ),
            running=tuple(running for _, running in seen if running is not None),
            queues=settings.queues,
            flavors=settings.flavors,
            budgets=tuple(budget.for_engine() for _, budget in sorted(tables.pod_budgets.items())),
            namespace_quotas=tables.namespace_quotas.now({}),
        )
        plan = decide(snapshot, NOW)
        assert len(plan.admissions) + len(plan.waiting) == len(snapshot.gangs)

    cluster = _cluster()
    seeds = [
        cluster,
        [each for each in cluster if each["kind"] not in {"Queue", "Flavor", "ResourceQuota", "TenancyPolicy"}],
        [
            each
            for each in cluster
            if each["kind"] in {"Node", "DeviceClass", "ResourceSlice", "ResourceClaimTemplate", "Pod"}
        ],
    ]
    words = (
        *webhook.WORDS,
        "p0",
        "c0",
        "held",
        "g",
        "j",
        "n1",
        "gpu-0",
        "uid-p0",
        "uid-j",
        "Failed",
        "Succeeded",
        "Running",
        "All",
        "0-99999999999",
        "50%",
        "2027-01-15T08:00:00Z",
        "deletionTimestamp",
        "NoExecute",
    )
    return Target(
        name="controller-views",
        run=run,
        seeds=tuple(msgspec.json.encode(each) for each in seeds),
        mutate=mixed((9, json_mutations(words, most=6, bytes_too=False)), (1, byte_mutations(most=1))),
        traced=("/fairlead/controller/", "/fairlead/engine/"),
        bytes_max=64 * 1024,
    )
