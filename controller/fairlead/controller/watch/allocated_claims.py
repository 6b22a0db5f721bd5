"""Which allocated claims there are with the pods that use them, and which came, went or changed since that was last asked.

A claim is told once it is known since when it is allocated: where the apiserver does not keep that, once its first pod is released
(`allocations`). One that is deallocated before is never told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from fairlead.api import names
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.claims.allocations import allocated_at, known_allocation_time
from fairlead.controller.watch.informers import Informers
from fairlead.kube import core, resource
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock


@dataclass(slots=True)
class Held:
    """An allocated claim, and the pods that use it as they were last seen, by UID; also those that are gone."""

    claim: resource.ResourceClaim
    pods: dict[str, core.Pod] = field(default_factory=dict)
    known_at: float | None = (
        None  # since when it is allocated, unix seconds: stays as it was first told, though pods go
    )

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def first_pod(self) -> core.Pod | None:
        """The one that the claim is accounted to, where several share it."""
        return self.pods[min(self.pods)] if self.pods else None

    def timed(self) -> bool:
        """Whether it is known since when the claim is allocated; finds that out."""
        if self.known_at is None:
            known = known_allocation_time(self.claim, self.pods.values())
            if known is None and any(pod.has_gate(names.ADMISSION_GATE) for pod in self.pods.values()):
                return False
            self.known_at = self.allocated_at if known is None else known
        return True

    @property
    def allocated_at(self) -> float:
        """Unix seconds."""
        return allocated_at(self.claim, self.pods.values()) if self.known_at is None else self.known_at


class AllocatedClaims:
    """`begin`, then `take` from time to time; `end` when no more are taken.

    `keeps_ended` False: what ended is not told, and takes no memory however long nothing is taken.
    """

    def __init__(
        self,
        informers: Informers,
        contained: Callable[[Held], AbstractContextManager[None]],
        *,
        wall: Clock,
        keeps_ended: bool = True,
    ) -> None:
        """`contained`: in which a claim is looked at, so that one that raises is left out, and not all others."""
        self._informers = informers
        self._contained = contained
        self._keeps_ended = keeps_ended
        self._wall = wall
        self._held: dict[str, Held] = {}  # by claim UID
        self._by_key: dict[str, str] = {}  # claim key: UID
        self._touched: dict[str, None] = {}  # claim UIDs, in order
        self._ended: list[tuple[Held, float]] = []
        self._unsubscribe: list[Callable[[], None]] = []

    def begin(self) -> None:
        informers = self._informers
        self._unsubscribe = [informers.claims.subscribe(self._claim), informers.pods.subscribe(self._pod)]

    def end(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []

    def take(self) -> tuple[list[Held], list[tuple[Held, float]]]:
        """Claims that are new or changed, also those that have ended since; and those that ended, with when (unix seconds)."""
        ended, self._ended = self._ended, []
        touched, self._touched = self._touched, {}
        changed = [self._held[uid] for uid in touched if uid in self._held]
        told = [*(held for held, _ in ended if held.uid in touched), *changed]
        return list(self._timed(told)), ended

    def all(self) -> Iterable[Held]:
        return self._timed(self._held.values())

    def _timed(self, claims: Iterable[Held]) -> Iterator[Held]:
        for held in claims:
            timed = False
            with self._contained(held):
                timed = held.timed()
            if timed:
                yield held

    def holds(self, uid: str) -> bool:
        """Whether the claim is allocated now."""
        return uid in self._held

    def touch_all(self) -> None:
        """What all of them are is to be told again: flavors or queues changed."""
        self._touched |= dict.fromkeys(self._held)

    def _claim(self, change: Change[resource.ResourceClaim]) -> None:
        claim = change.new
        if change.old is not None and claim is not None and change.old.metadata.uid != claim.metadata.uid:
            self._claim(Change(change.type, change.key, change.old, None))  # another of its name
        known = self._held.get(change.object.metadata.uid)
        allocation = claim.status.allocation if claim is not None else None
        if known is not None and (allocation is None or _allocated(known.claim) != _allocated(claim)):
            if self._keeps_ended:
                self._ended.append((known, self._wall()))
            else:
                self._touched.pop(known.uid, None)
            del self._held[known.uid], self._by_key[known.claim.metadata.key]
            known = None
        if claim is None or allocation is None:
            return
        if known is None:
            known = self._held[claim.metadata.uid] = Held(claim)
            self._by_key[claim.metadata.key] = claim.metadata.uid
            for pod in self._informers.pods_of(claim).values():
                known.pods[pod.metadata.uid] = pod
        known.claim = claim
        self._touched[claim.metadata.uid] = None

    def _pod(self, change: Change[core.Pod]) -> None:
        pod = change.object
        if not pod.spec.resource_claims:
            return
        for name in claims.names_used(pod).values():
            uid = self._by_key.get(f"{pod.metadata.namespace}/{name}")
            if uid is None:
                continue
            pods = self._held[uid].pods
            pods[pod.metadata.uid] = pod
            if change.new is None and len(pods) > 1:
                del pods[pod.metadata.uid]  # the last one is kept: it tells why the claim comes free
            self._touched[uid] = None


def _allocated(claim: resource.ResourceClaim | None) -> tuple[str, resource.AllocationResult] | None:
    if claim is None or claim.status.allocation is None:
        return None
    return claim.metadata.uid, claim.status.allocation
