"""The cluster as a simulation changes it: devices, pods and running gangs, and back to how they were.

Plays the controller's part without any write: what is admitted holds its devices at once, what ends frees them at once. Works
on the tables of a snapshot, which must not be read or changed otherwise meanwhile; `restore` puts back what they held.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.engine.inventory.device import Device
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember, RunningSequence
from fairlead.engine.types.plan import Admission
from fairlead.engine.types.pods import PodIdentity, PodNeeds


class SimulatedCluster:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._inventory, self._nodes = snapshot.inventory, snapshot.nodes
        self._claims: dict[str, AllocatedClaim | None] = {}  # as they were before they changed; None: not allocated
        self._pods: dict[str, tuple[str, PodNeeds, PodIdentity] | None] = {}
        self._released: list[Device] = []  # that their nodes were releasing
        self.devices_in_use = 0  # by claims
        self._base = {gang.id: gang for gang in snapshot.running}
        self._first = (
            snapshot.running
            if isinstance(snapshot.running, RunningSequence)
            else RunningSequence.after(None, [self._base[gang_id] for gang_id in sorted(self._base)])
        )
        self.restore()

    def restore(self) -> None:
        for uid, claim in self._claims.items():
            if claim is None:
                self._inventory.drop_claim(uid)
            else:
                self._inventory.set_allocated(claim)
        for uid, pod in self._pods.items():
            if pod is None:
                self._nodes.drop_pod(uid)
            else:
                self._nodes.set_needs(uid, *pod)
        for device in self._released:
            self._inventory.set_releasing(device, True)
        self._claims.clear()
        self._pods.clear()
        self._released.clear()
        self.devices_in_use = sum(claim.counted for claim in self._inventory.claims())
        self.running = dict(self._base)
        self._ids = sorted(self.running)
        self._sequence = self._first
        self._gone: list[RunningGang] = []
        self._new: list[RunningGang] = []

    def sequence(self) -> RunningSequence:
        """The running gangs, with what became of the sequence before."""
        if self._gone or self._new:
            self._sequence = RunningSequence.after(
                self._sequence, [self.running[gang_id] for gang_id in self._ids], gone=self._gone, new=self._new
            )
            self._gone, self._new = [], []
        return self._sequence

    def devices_of(self, gang: RunningGang) -> int:
        claims = (self._inventory.claim(uid) for uid in gang.claims)
        return sum(claim.counted for claim in claims if claim is not None)

    # -- changes ---------------------------------------------------------------------------------------------------

    def start(self, admission: Admission, request: GangRequest, now: float) -> None:
        """It runs from now on; what joins a gang that runs is counted with it."""
        for claim in admission.claims:
            if not claim.already_allocated:
                planned = AllocatedClaim.planned(claim.key, claim.namespace, claim.name, claim.allocation)
                self._set_claim(claim.key, planned)
        node_of = {assigned.pod.uid: assigned.node for assigned in admission.assignments}
        members = []
        for member in request.members:
            identity = PodIdentity(namespace=member.pod.namespace, labels=dict(member.labels))
            self._set_pod(member.pod.uid, (node_of[member.pod.uid], member.needs, identity))
            members.append(
                RunningMember(pod=member.pod, node=node_of[member.pod.uid], claims=member.claims, started=now)
            )
        before = self.running.get(request.id)
        claims = {claim.key for claim in admission.claims}
        if before is not None:
            joined = tuple(sorted({*before.claims, *claims}))
            pods = before.pods
            if not before.members:  # they are not known, and nothing is evicted of it
                pods, members = (*pods, *(member.pod.uid for member in members)), []
            self._put(replace(before, claims=joined, members=(*before.members, *members), pods=pods))
            return
        self._put(
            RunningGang(
                namespace=request.namespace,
                name=request.name,
                uid=request.uid,
                queue=request.queue,
                namespace_labels=request.namespace_labels,
                claims=tuple(sorted(claims)),
                priority=request.priority,
                created=request.created,
                started=now,
                size=request.size,
                members=tuple(members),
                ends_by=None if request.run_s is None else now + request.run_s,
                endless=request.endless,
            )
        )

    def leave(self, gang_id: str, pods: set[str]) -> None:
        """These pods (UIDs) are being evicted: they hold what they have until `remove`."""
        gang = self.running[gang_id]
        members = (replace(each, leaving=True) if each.pod.uid in pods else each for each in gang.members)
        self._put(replace(gang, members=tuple(members)))

    def remove(self, gang_id: str, pods: set[str] | None = None) -> None:
        """These pods of it are gone, with the claims that no other member has; all of it when `pods` is None."""
        gang = self.running[gang_id]
        staying = [each for each in gang.members if pods is not None and each.pod.uid not in pods]
        kept = {uid for each in staying for uid in each.claims}
        for each in gang.members:
            if pods is None or each.pod.uid in pods:
                self._set_pod(each.pod.uid, None)
        for uid in gang.claims:
            if uid not in kept:
                self._set_claim(uid, None)
        if staying:
            left = tuple(uid for uid in gang.claims if uid in kept)
            self._put(replace(gang, claims=left, members=tuple(staying)))
        else:
            self._drop(gang)

    def release(self, device: Device) -> None:
        self._released.append(device)
        self._inventory.set_releasing(device, False)

    # -- internal --------------------------------------------------------------------------------------------------

    def _put(self, gang: RunningGang) -> None:
        before = self.running.get(gang.id)
        if before is None:
            insort(self._ids, gang.id)
        else:
            self._forget(before)
        self.running[gang.id] = gang
        self._new.append(gang)

    def _drop(self, gang: RunningGang) -> None:
        self._forget(gang)
        del self.running[gang.id]
        del self._ids[bisect_left(self._ids, gang.id)]

    def _forget(self, gang: RunningGang) -> None:
        """A gang that came and went between two sequences is in none."""
        fresh = next((place for place, each in enumerate(self._new) if each is gang), None)
        if fresh is None:
            self._gone.append(gang)
        else:
            del self._new[fresh]

    def _set_claim(self, uid: str, claim: AllocatedClaim | None) -> None:
        before = self._inventory.claim(uid)
        self._claims.setdefault(uid, before)
        self.devices_in_use += (0 if claim is None else claim.counted) - (0 if before is None else before.counted)
        if claim is None:
            self._inventory.drop_claim(uid)
        else:
            self._inventory.set_allocated(claim)

    def _set_pod(self, uid: str, pod: tuple[str, PodNeeds, PodIdentity] | None) -> None:
        self._pods.setdefault(uid, self._nodes.counted(uid))
        if pod is None:
            self._nodes.drop_pod(uid)
        else:
            self._nodes.set_needs(uid, *pod)


def pods_of(members: Iterable[RunningMember]) -> set[str]:
    return {member.pod.uid for member in members}
