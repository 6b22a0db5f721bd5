"""The engine's tables of devices, nodes and classes, kept current from the informers, with running commits assumed.

An admission's devices and nodes count as taken from its decision on, until the informers show them or the admission is
known to be undone (kube-scheduler's assumed pods). So the next decision never gives a device twice, though the watch
lags behind the writes.

A long decision reads inventory and nodes in a thread of its own (`cycle`). They stay as they are while it does: what changes
meanwhile is put off to its end. Every change of the two goes through `Tables` for that reason.

ResourceQuotas that limit claims: `status.used` follows a created claim by a watch event of its own, so it may lag behind the claims that
this controller has made: what is in use is the larger of it and of what the known claims add up to. After a deletion it is the
apiserver's view that counts, and that falls when the quota controller has counted anew. Namespaces without such quotas cost nothing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from fairlead.controller.autoscaling.shapes import is_placeholder
from fairlead.controller.gangs.claims import quotas
from fairlead.controller.gangs.claims.quotas import Charge, ClaimCharge, Classes
from fairlead.controller.gangs.evictions.disruption import PodBudget
from fairlead.controller.gangs.evictions.moved import Held, Spot
from fairlead.controller.gangs.held.vacancies import Leftover
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.plan.decide import Engine
from fairlead.engine.types.pods import Namespaces
from fairlead.engine.types.settings import NamespaceQuota
from fairlead.kube import core, resource
from fairlead.kube.informer import Informer
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

Claims = Callable[[], Iterable[resource.ResourceClaim]]
_NONE: frozenset[str] = frozenset()


class Tables:
    def __init__(
        self,
        pods: Informer[core.Pod],
        claims: Informer[resource.ResourceClaim],
        namespaces: Namespaces | None = None,
    ) -> None:
        """Both informers have an index "uid". `namespaces`: see `NodeTable`."""
        self.inventory = Inventory()
        self.nodes = NodeTable(namespaces)
        self.engine = Engine()  # its caches are of these two
        self._put_off: list[Callable[[], object]] | None = None  # changes, while a decision reads in its thread
        self.classes: dict[str, resource.DeviceClass] = {}
        self.namespace_quotas = NamespaceQuotaTable(claims.all, self.classes)
        self.pod_budgets: dict[str, PodBudget] = {}  # PodDisruptionBudgets by key
        self.leftovers: dict[str, Leftover] = {}  # by claim UID: of pods that are deleted
        self._awaiting_neighbours: set[tuple[str, str]] = set()  # gangs whose place may depend on other pods' places
        self._pods = pods
        self._claims = claims
        self._assumed_claims: set[str] = set()  # keys of ClaimAllocations
        self._assumed_pods: dict[str, str] = {}  # node by pod UID
        self._held_pods: dict[str, core.Pod] = {}  # by UID: pods that ended, and keep the room on their node
        self._places: set[Held] = set()  # of gangs that are being moved

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Inventory and nodes do not change inside; what came is done at the end, in order."""
        changes: list[Callable[[], object]] = []
        self._put_off = changes
        try:
            yield
        finally:
            self._put_off = None
            for change in changes:
                try:
                    change()
                except Exception:  # one object that cannot be read must not keep the others out
                    log.exception("a change that came during a decision failed: %s", change)

    def _change(self, change: Callable[..., object], *args: object) -> None:
        """Now, or when the decision that reads the tables is over."""
        if self._put_off is None:
            change(*args)
        else:
            self._put_off.append(functools.partial(change, *args))

    def awaits_neighbours(self, gang: tuple[str, str], *, awaits: bool) -> None:
        """Whether the gang waits with pods that need others around them."""
        if awaits:
            self._awaiting_neighbours.add(gang)
        else:
            self._awaiting_neighbours.discard(gang)

    @property
    def neighbours_matter(self) -> bool:
        """Whether a pod more on a node can be what a gang waits for."""
        return bool(self._awaiting_neighbours)

    def set_node(self, node: core.Node) -> None:
        self._change(self.nodes.set_node, node)

    def drop_node(self, name: str) -> None:
        self._change(self.nodes.drop_node, name)

    def set_slice(self, published: resource.ResourceSlice) -> None:
        self._change(self.inventory.set_slice, published)

    def drop_slice(self, name: str) -> None:
        self._change(self.inventory.drop_slice, name)

    def set_taint_rule(self, rule: resource.DeviceTaintRule) -> None:
        self._change(self.inventory.set_taint_rule, rule)

    def drop_taint_rule(self, name: str) -> None:
        self._change(self.inventory.drop_taint_rule, name)

    def set_claim(self, uid: str, claim: resource.ResourceClaim | None) -> None:
        """As watched; None: deleted. An assumed claim stays as assumed."""
        if uid in self._assumed_claims:
            return
        if claim is None:
            self._change(self.inventory.drop_claim, uid)
        else:
            self._change(self.inventory.set_claim, claim)

    def set_pod(self, pod: core.Pod) -> None:
        """As watched; an assumed pod stays on its assumed node until it is bound. Placeholders take no room."""
        if is_placeholder(pod):
            return
        if pod.metadata.uid not in self._held_pods:
            self._change(
                self.nodes.set_pod, pod, None if pod.spec.node_name else self._assumed_pods.get(pod.metadata.uid)
            )

    def drop_pod(self, uid: str) -> None:
        """The pod is deleted or finished."""
        self._assumed_pods.pop(uid, None)
        if uid not in self._held_pods:
            self._change(self.nodes.drop_pod, uid)

    def assume_claim(self, key: str, claim: resource.ResourceClaim) -> None:
        """The devices of `claim.status.allocation` are taken, under `key`, until `forget_claim`."""
        self._assumed_claims.add(key)
        self._change(self.inventory.set_claim, claim)

    def forget_claim(self, key: str) -> None:
        """From here on the watched claim counts."""
        if key not in self._assumed_claims:
            return
        self._assumed_claims.remove(key)
        self._change(self.inventory.drop_claim, key)
        for watched in self._claims.by_index("uid", key):
            self._change(self.inventory.set_claim, watched)

    def assume_pod(self, pod: core.Pod, node: str) -> None:
        """The pod takes room on `node` until `forget_pod`, or until it is bound."""
        self._assumed_pods[pod.metadata.uid] = node
        self._change(self.nodes.set_pod, pod, node)

    def forget_pod(self, uid: str) -> None:
        """From here on the watched pod counts."""
        if self._assumed_pods.pop(uid, None) is None:
            return
        self._change(self.nodes.drop_pod, uid)
        for watched in self._pods.by_index("uid", uid):
            self._change(self.nodes.set_pod, watched)

    def forget_all(self) -> None:
        """From here on only what is watched counts: the end of a term, whose commits and held places mean nothing to the next."""
        for key in list(self._assumed_claims):
            self.forget_claim(key)
        for uid in list(self._assumed_pods):
            self.forget_pod(uid)
        for pod in list(self._held_pods.values()):
            self.unhold(pod, ())
        for place in list(self._places):
            self.release_place(place)

    def hold(self, pod: core.Pod, node: str, claims: Iterable[resource.ResourceClaim]) -> None:
        """The place of a pod that ended stays taken until `unhold`: its room on `node`, and its devices."""
        if pod.metadata.uid not in self._held_pods:
            self._held_pods[pod.metadata.uid] = pod
            self._change(self.nodes.set_pod, pod, node)
        for claim in claims:
            if claim.metadata.uid not in self._assumed_claims:
                self.assume_claim(claim.metadata.uid, claim)

    def hold_place(self, place: Held) -> None:
        """The place of a gang that is being moved is taken until `release_place`."""
        self._places.add(place)
        for claim in place.claims:
            self._change(self.inventory.set_allocated, claim)
        for uid, node, needs in place.pods:
            self._change(self.nodes.set_needs, uid, node, needs)

    def are_free(self, spots: Iterable[Spot], namespace: str) -> bool:
        """Whether no claim of another namespace has a device of these. A gang may move to devices of which it had some."""
        wanted = {device for spot in spots for device in spot.devices}
        others = (claim for claim in self.inventory.claims() if claim.namespace != namespace)
        return all(wanted.isdisjoint(device.ref for device in claim.devices if not device.admin) for claim in others)

    def release_place(self, place: Held) -> None:
        if place not in self._places:
            return
        self._places.remove(place)
        for claim in place.claims:
            self._change(self.inventory.drop_claim, claim.uid)
        for uid, _, _ in place.pods:
            self._change(self.nodes.drop_pod, uid)

    def unhold(self, pod: core.Pod, claims: Iterable[resource.ResourceClaim]) -> None:
        """From here on the watched pod and claims count: none, once they are gone."""
        if self._held_pods.pop(pod.metadata.uid, None) is None:
            return
        self._change(self.nodes.drop_pod, pod.metadata.uid)
        for watched in self._pods.by_index("uid", pod.metadata.uid):
            self._change(self.nodes.set_pod, watched)
        for claim in claims:
            self.forget_claim(claim.metadata.uid)


class _Namespace:
    """One namespace with quotas on claims."""

    def __init__(self) -> None:
        self.quotas: dict[str, tuple[NamespaceQuota, ...]] = {}  # by name
        self.limited: frozenset[str] = _NONE
        self.created: Charge = {}  # by all its claims
        self.allocated: Charge = {}  # by legacy claims with devices
        self._claims: dict[str, tuple[ClaimCharge, bool]] = {}  # by UID; whether it has devices

    def set_claim(self, claim: resource.ResourceClaim, classes: Classes) -> None:
        self.drop_claim(claim.metadata.uid)
        charge = quotas.claim_charge(claim.spec, claim.metadata.annotations, classes)
        self._claims[claim.metadata.uid] = (charge, claim.status.allocation is not None)
        self._count(claim.metadata.uid, 1)

    def drop_claim(self, uid: str) -> None:
        if uid in self._claims:
            self._count(uid, -1)
            del self._claims[uid]

    def _count(self, uid: str, times: int) -> None:
        charge, allocated = self._claims[uid]
        quotas.add(self.created, charge.created, times)
        if allocated:
            quotas.add(self.allocated, charge.allocated, times)

    def now(self, writing: Mapping[str, int]) -> Iterable[NamespaceQuota]:
        for quota in (each for _, found in sorted(self.quotas.items()) for each in found):
            name = quota.resource
            used = max(quota.used, self.created.get(name, 0)) + self.allocated.get(name, 0) + writing.get(name, 0)
            yield replace(quota, used=used)


class NamespaceQuotaTable:
    def __init__(self, claims: Claims, classes: Classes) -> None:
        """`claims` gives all claims that are known; `classes` are kept current by others."""
        self._claims = claims
        self._classes = classes
        self._namespaces: dict[str, _Namespace] = {}

    def limited(self, namespace: str) -> frozenset[str]:
        """The resources that quotas of the namespace limit."""
        found = self._namespaces.get(namespace)
        return found.limited if found is not None else _NONE

    def set_quota(self, key: str, quota: Raw | None) -> tuple[bool, bool]:
        """As watched; None: deleted. Returns whether a waiting gang may fit now, and whether other resources are limited."""
        namespace, _, name = key.partition("/")
        limits = quotas.limits(quota) if quota is not None else ()
        known = self._namespaces.get(namespace)
        if known is None and not limits:
            return False, False
        if known is None:
            known = self._namespaces[namespace] = _Namespace()
            self._read_claims(namespace, known)
        before = known.quotas.pop(name, ())
        if limits:
            known.quotas[name] = limits
        limited = frozenset(each.resource for found in known.quotas.values() for each in found)
        changed, known.limited = limited != known.limited, limited
        if not known.quotas:
            del self._namespaces[namespace]
        left = {each.resource: each.limit - each.used for each in limits}
        return any(each.limit - each.used < left.get(each.resource, each.limit) for each in before), changed

    def set_claim(self, old: resource.ResourceClaim | None, new: resource.ResourceClaim | None) -> bool:
        """As watched. Returns whether it is gone, and with it what it counted for."""
        seen = new or old
        known = self._namespaces.get(seen.metadata.namespace) if seen is not None else None
        if known is None:
            return False
        if new is not None:
            known.set_claim(new, self._classes)
        elif old is not None:
            known.drop_claim(old.metadata.uid)
        return new is None

    def classes_changed(self) -> None:
        """Which extended resources classes stand for has changed: count anew."""
        for namespace, known in list(self._namespaces.items()):
            counted = self._namespaces[namespace] = _Namespace()
            counted.quotas, counted.limited = known.quotas, known.limited
            self._read_claims(namespace, counted)

    def now(self, writing: Mapping[str, Mapping[str, int]]) -> tuple[NamespaceQuota, ...]:
        """All of them with what is in use; `writing`: by namespace, what admissions under way still add."""
        return tuple(
            quota
            for namespace, known in sorted(self._namespaces.items())
            for quota in known.now(writing.get(namespace, {}))
        )

    def _read_claims(self, namespace: str, into: _Namespace) -> None:
        for claim in self._claims():
            if claim.metadata.namespace == namespace:
                into.set_claim(claim, self._classes)
