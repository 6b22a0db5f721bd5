"""What must hold at every change of the store and on every node, whatever goes wrong (DESIGN, section 7).

Each check reads only objects and nodes, never Fairlead's own state. A gang is counted from the changes of its pods and claims:
what its controller may know at the moment of a release is what the store has shown it, so a member counts as there if its
claims were all allocated since the gang last had nothing released, unless its allocation was taken back while it lived.
A member that is replaced while the last of the others ends may be released alone: no write can be conditional on another object.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fairlead.api import names, texts
from fairlead.sandbox.apiserver.store import Change, Store
from fairlead.sandbox.objects import (
    allocation_of,
    is_deleting,
    meta,
    name_of,
    namespace_of,
    phase_of,
    pod_claims,
    results_of,
    spec_of,
    uid_of,
)
from tests.chaos.cluster import EXPECTED_ENDS, ChaosCluster
from tests.chaos.virtual import CLOCK

CLAIMS, PODS, JOBS = "resource.k8s.io/resourceclaims", "/pods", "batch/jobs"
GANGS, EVENTS = "fairlead.dev/gangs", "/events"
OURS = (
    "fairlead.controller",
    "fairlead.webhook",
    "fairlead.driver",
    "fairlead.kube",
    "fairlead.engine",
    "fairlead.history",
    "fairlead.cel",
)

UNKNOWN_S = 30.0
"""The end of a pod may be unknown to the controller for so long: a watch that is silent, then listed anew, then a decision."""

Json = dict[str, Any]
GangKey = tuple[str, str, str]  # namespace, name, UID of what made its pods


class _Gang:
    def __init__(self) -> None:
        self.ready: set[str] = set()  # UIDs of members whose claims are all allocated, in this attempt
        self.released: set[str] = set()  # that live
        self.done: set[str] = set()  # that succeeded
        self.whole = False  # was released whole, and some of it lives: others are replaced one by one
        self.whole_until = 0.0  # for so long after the last of it ended a controller may not know of that


class Invariants:
    """`broken` collects a sentence for each violation, in order. Subscribes to the store for as long as it lives."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self.broken: list[str] = []
        self.changes = 0  # of claims, pods and jobs
        self._cluster = cluster
        self._store: Store = cluster.store
        self._holder: dict[tuple[str, str, str], tuple[str, str]] = {}  # device -> claim
        self._devices: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        self._gangs: defaultdict[GangKey, _Gang] = defaultdict(_Gang)
        self._pods: dict[str, Json] = {}  # by UID: the last state of each, also of those that are gone
        self._allocated: set[tuple[str, str]] = set()
        self._store.subscribe(CLAIMS, self._claim_changed)
        self._store.subscribe(PODS, self._pod_changed)
        self._store.subscribe(GANGS, self._gang_changed)
        self._store.subscribe(EVENTS, self._event_changed)
        for storage in (CLAIMS, PODS, JOBS):
            self._store.subscribe(storage, self._count)
        logging.getLogger().addHandler(_Errors(self))

    def fail(self, text: str) -> None:
        self.broken.append(f"{CLOCK.now:.3f}: {text}")

    def _count(self, _: Change) -> None:
        self.changes += 1

    # -- what tenants write decides nothing

    def _gang_changed(self, change: Change) -> None:
        if change.new is None:
            return
        gang, key = change.new.obj, "/".join(change.key)
        noted = [name for name in meta(gang).get("annotations") or {} if name.startswith("fairlead.dev/")]
        if noted or meta(gang).get("ownerReferences"):
            self.fail(f"gang {key} has {', '.join(noted) or 'an owner'}, which only a tenant can have written")
        self._check_text(f"status of gang {key}", gang.get("status"))

    def _event_changed(self, change: Change) -> None:
        event = change.new.obj if change.new is not None else {}
        if str(event.get("reportingComponent") or (event.get("source") or {}).get("component", "")).startswith(
            "fairlead"
        ):
            self._check_text(f"event {'/'.join(change.key)}", event.get("message"))

    def _check_text(self, what: str, value: Any) -> None:
        """No text of ours steers a terminal."""
        if texts.tree(value) != value:
            self.fail(f"{what} has characters that steer a terminal: {json.dumps(value)[:300]}")

    # -- 1: no device in two claims

    def _claim_changed(self, change: Change) -> None:
        key = change.key
        for device in self._devices.pop(key, ()):
            if self._holder.get(device) == key:
                del self._holder[device]
        claim = change.new.obj if change.new is not None else None
        if claim is not None:
            devices = [
                (str(each["driver"]), str(each["pool"]), str(each["device"]))
                for each in results_of(claim)
                if not each.get("adminAccess") and not each.get("shareID")
            ]
            for device in devices:
                other = self._holder.setdefault(device, key)
                if other != key:
                    self.fail(f"device {'/'.join(device)} is in claims {'/'.join(other)} and {'/'.join(key)}")
            if devices:
                self._devices[key] = devices
        self._note_allocation(change, claim)

    # -- 2: a gang is released whole

    def _note_allocation(self, change: Change, claim: Json | None) -> None:
        had = change.key in self._allocated
        has = claim is not None and allocation_of(claim) is not None
        if had == has:
            return
        (self._allocated.add if has else self._allocated.discard)(change.key)
        known = claim or (change.old.obj if change.old is not None else {})
        for owner in meta(known).get("ownerReferences") or ():
            pod = self._pods.get(str(owner.get("uid")))
            if pod is not None:
                self._look(pod, taken_back=claim is not None)

    def _look(self, pod: Json, *, taken_back: bool) -> None:
        gang, uid = self._gangs[_gang_of(pod)], uid_of(pod)
        claims = [(namespace_of(pod), name) for _, name in pod_claims(pod)]
        if claims and all(name and (space, name) in self._allocated for space, name in claims):
            gang.ready.add(uid)
        elif taken_back and self._store.get(PODS, (namespace_of(pod), name_of(pod))) and not is_deleting(pod):
            gang.ready.discard(uid)

    def _pod_changed(self, change: Change) -> None:
        pod = change.new.obj if change.new is not None else None
        known = pod if pod is not None else change.last.obj
        if not _is_ours(known):
            return
        uid, gang = uid_of(known), self._gangs[_gang_of(known)]
        before = self._pods.get(uid)
        self._pods[uid] = known
        over = pod is None or phase_of(known) in {"Succeeded", "Failed"}
        if phase_of(known) == "Succeeded":
            gang.done.add(uid)
        if over:
            if uid in gang.released:
                gang.released.discard(uid)
                if not gang.released:
                    if gang.whole:
                        gang.whole_until = CLOCK.now + UNKNOWN_S
                    gang.whole = False
                    gang.ready = {each for each in gang.ready if not self._is_over(each)}
            return
        self._look(known, taken_back=False)
        if not _is_gated(known) and uid not in gang.released:
            gang.released.add(uid)
            if before is not None and _is_gated(before) and is_pinned(known):
                self._check_release(known, gang)

    def _is_over(self, uid: str) -> bool:
        pod = self._pods[uid]
        stored = self._store.get(PODS, (namespace_of(pod), name_of(pod)))
        return stored is None or uid_of(stored.obj) != uid or phase_of(pod) in {"Succeeded", "Failed"}

    def _check_release(self, pod: Json, gang: _Gang) -> None:
        size = int((meta(pod).get("annotations") or {}).get(names.GANG_SIZE) or 1)
        there = gang.ready | gang.released | gang.done
        if uid_of(pod) not in gang.ready:
            self.fail(f"pod {namespace_of(pod)}/{name_of(pod)} was released before its claims were allocated")
        elif len(there) >= size:
            gang.whole = True
        elif not gang.whole and CLOCK.now > gang.whole_until:
            self.fail(
                f"pod {namespace_of(pod)}/{name_of(pod)} was released with {len(there)} of its gang's {size} members there"
            )

    # -- 7: what containers hold

    def check_nodes(self) -> None:
        """No device of a node is in running containers of two claims."""
        for node in self._cluster.nodes.values():
            holders: dict[str, str] = {}
            for (namespace, pod, name), container in node.runtime.running.items():
                for device in container.cdi_devices:
                    claim, _, gpu = device.partition("=")[2].partition("-gpu-")
                    other = holders.setdefault(gpu, claim)
                    if gpu and other != claim:
                        self.fail(
                            f"node {node.name}: gpu-{gpu} is given to container {namespace}/{pod}/{name} of claim {claim} while a "
                            f"container of claim {other} runs with it"
                        )

    # -- nothing crashes

    def check_ends(self) -> None:
        """A program ends by itself only because it could not start, or its disk or apiserver did not serve it."""
        ends, self._cluster.ends = self._cluster.ends, []
        for process, error in ends:
            if error is None or not all(isinstance(each, EXPECTED_ENDS) for each in _leaves(error)):
                self.fail(f"{process.name} ended by itself: {error!r}")


class _Errors(logging.Handler):
    """An error that a program of ours did not expect, and one that nobody caught."""

    def __init__(self, invariants: Invariants) -> None:
        super().__init__(logging.ERROR)
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.name.startswith(OURS) and error is not None:
            self._invariants.fail(f"{record.name}: {record.getMessage()}: {error!r}")
        elif record.name == "asyncio" and error is not None and "never retrieved" not in record.getMessage():
            self._invariants.fail(f"{record.getMessage()}: {error!r}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _is_ours(pod: Json) -> bool:
    return names.ADMISSION_GATE in {gate.get("name") for gate in spec_of(pod).get("schedulingGates") or ()} or bool(
        spec_of(pod).get("resourceClaims")
    )


def _is_gated(pod: Json) -> bool:
    return any(gate.get("name") == names.ADMISSION_GATE for gate in spec_of(pod).get("schedulingGates") or ())


def is_pinned(pod: Json) -> bool:
    """The controller pins what it releases. Who else takes a gate off, while the webhook is away, releases nothing: no claim of
    the pod has devices.
    """
    affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    return any(term.get("matchFields") for term in terms)


def _gang_of(pod: Json) -> GangKey:
    annotations = meta(pod).get("annotations") or {}
    owner = next((str(each["uid"]) for each in meta(pod).get("ownerReferences") or () if each.get("controller")), "")
    name = annotations.get(names.GANG)
    return namespace_of(pod), str(name or name_of(pod)), owner if name else uid_of(pod)
