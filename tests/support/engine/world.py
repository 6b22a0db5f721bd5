"""A cluster as raw JSON, for tests, benchmarks and docs: add nodes, decide, carry the plan out, check it with the judge.

It does the controller's part (tables updated, plans written back) without any I/O, so that a scenario is ten lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.drivers import part_class
from fairlead.controller.commit.places import keeps_place
from fairlead.controller.gangs.evictions.moved import Held, spots_of, to_its_place, with_place
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember
from fairlead.engine.types.plan import Admission, Plan
from fairlead.engine.types.pods import PodIdentity, PodNeeds, Workload
from fairlead.engine.types.settings import DisruptionBudget, FlavorSpec, QueueSpec
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource
from tests.support.engine.judge import faults
from tests.support.engine.objects import Json, gpu, plain_json, slice_of


def _selects(driver: str, kind: str) -> Json:
    expression = f'device.driver == "{driver}" && device.attributes["{driver}"].type == "{kind}"'
    return {"selectors": [{"cel": {"expression": expression}}]}


class World:
    """Nodes, slices, classes, allocated claims and pods, and the tables that decisions read."""

    def __init__(self, driver: str = names.DRIVER) -> None:
        self.driver = driver
        self.engine = Engine()
        self.inventory = Inventory()
        self.nodes = NodeTable()
        self.node_json: dict[str, Json] = {}
        self.slice_json: dict[str, Json] = {}
        self.class_json: dict[str, Json] = {}
        self.answers: dict[str, tuple[Json, str, Json]] = {}  # claim key: claim, node, allocation
        self.pods: dict[str, tuple[Json, str]] = {}  # by UID: pod, node
        self.running: dict[str, RunningGang] = {}
        self.requests: dict[str, GangRequest] = {}  # as those that run were asked for
        self.moving: dict[str, Held] = {}  # by gang id: places held for gangs that are moved
        self.movable: set[str] = set()  # ids of gangs that say what they would ask for elsewhere
        self.queues: tuple[QueueSpec, ...] = ()
        self.flavors: tuple[FlavorSpec, ...] = ()
        self.budgets: tuple[DisruptionBudget, ...] = ()
        self.now = 0.0
        self.reserve_after_s = 600.0
        self.restart_s: float | None = None  # of all gangs
        self.workload: Workload | None = None
        self.requests_of_moving: dict[str, GangRequest] = {}
        self.add_class(driver, _selects(driver, "gpu"))
        self.add_class(part_class(driver), _selects(driver, "mig"))

    @property
    def classes(self) -> dict[str, resource.DeviceClass]:
        return {name: msgspec.convert(body, resource.DeviceClass) for name, body in self.class_json.items()}

    def add_class(self, name: str, spec: Json) -> None:
        self.class_json[name] = {"metadata": {"name": name}, "spec": spec}

    def add_node(
        self,
        name: str,
        devices: Sequence[Json] = (),
        *,
        counters: Sequence[Json] = (),
        labels: Mapping[str, str] | None = None,
        allocatable: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        self.node_json[name] = {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": spec,
            "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", **(allocatable or {})}},
        }
        self.nodes.set_node(msgspec.convert(self.node_json[name], core.Node))
        if devices:
            self.add_slices(slice_of(name, devices, counters=counters, driver=self.driver))

    def cordon(self, name: str, closed: bool) -> None:
        """Let nothing new start on the node, or let it again."""
        self.node_json[name]["spec"] = {**self.node_json[name]["spec"], "unschedulable": closed}
        self.nodes.set_node(msgspec.convert(self.node_json[name], core.Node))

    def add_slices(self, slices: Iterable[Json]) -> None:
        new = list(slices)
        self.slice_json |= {entry["metadata"]["name"]: entry for entry in new}
        self.inventory.set_slices(msgspec.convert(new, list[resource.ResourceSlice]))

    def snapshot(self, *gangs: GangRequest) -> Snapshot:
        return Snapshot(
            inventory=self.inventory,
            nodes=self.nodes,
            classes=self.classes,
            gangs=gangs,
            running=tuple(self.running.values()),
            queues=self.queues,
            flavors=self.flavors,
            budgets=self.budgets,
            reserve_after_s=self.reserve_after_s,
            workload=self.workload,
        )

    def decide(self, *gangs: GangRequest) -> Plan:
        return self.decide_with(self.engine.decide, *gangs)

    def decide_with(self, make: Callable[[Snapshot, float], Plan], *gangs: GangRequest) -> Plan:
        """Places of gangs that are moved are free for these gangs, bound to them, while it decides."""
        lifted = [self.moving[each.id] for each in gangs if each.id in self.moving]
        for held in lifted:
            self._release(held)
        bound = [to_its_place(each, self.moving[each.id]) if each.id in self.moving else each for each in gangs]
        plan = make(self.snapshot(*bound), self.now)
        for held in lifted:
            self._hold(held)
        return plan

    def _hold(self, held: Held) -> None:
        for claim in held.claims:
            self.inventory.set_allocated(claim)
        for uid, node, needs in held.pods:
            self.nodes.set_needs(uid, node, needs)
        key = "/".join(held.gang)
        known = self.running.get(key)
        queue = known.queue if known is not None else self.requests_of_moving[key].queue
        self.running[key] = with_place(known, held, queue)

    def _release(self, held: Held) -> None:
        for claim in held.claims:
            self.inventory.drop_claim(claim.uid)
        for uid, _, _ in held.pods:
            self.nodes.drop_pod(uid)
        key = "/".join(held.gang)
        known = self.running[key]
        left = tuple(uid for uid in known.claims if uid not in {claim.uid for claim in held.claims})
        if left:
            self.running[key] = replace(known, claims=left, pods=())
        else:
            del self.running[key]

    def carry_out(self, plan: Plan, gangs: Iterable[GangRequest]) -> list[GangRequest]:
        """Write admissions and evictions back, as the rim would; returns the gangs that still wait.

        Evicted pods are leaving until `gone()`; gangs for which others go are `preemptor` from then on.
        """
        by_id = {entry.id: entry for entry in gangs}
        for eviction in plan.evictions:
            self._leave(eviction.id, set(eviction.pods))
            if eviction.place is not None:
                self._move(eviction.id, eviction.place)
            if eviction.whole and eviction.beneficiary:
                self._disrupted(eviction.queue)
            if eviction.beneficiary in by_id:
                by_id[eviction.beneficiary] = replace(by_id[eviction.beneficiary], preemptor=True)
        waits = {each.id: each.reason.code for each in plan.waiting}
        for gang_id in [each for each in self.moving if each in by_id and not keeps_place(waits.get(each))]:
            self._release(self.moving.pop(gang_id))
            del self.requests_of_moving[gang_id]
        for admission in plan.admissions:
            entry = by_id.pop(admission.id)
            if (held := self.moving.pop(admission.id, None)) is not None:
                self._release(held)
                del self.requests_of_moving[admission.id]
            node_of = {assignment.pod: assignment.node for assignment in admission.assignments}
            specs = {claim.key: claim for claim in entry.claims}
            for member in entry.members:
                pod = {
                    "metadata": {"name": member.pod.name, "namespace": member.pod.namespace, "uid": member.pod.uid},
                    "spec": {"containers": [{"name": "main", "resources": {"requests": _requests(member.needs)}}]},
                }
                self.pods[member.pod.uid] = (pod, node_of[member.pod])
                identity = PodIdentity(namespace=member.pod.namespace, labels=dict(member.labels))
                self.nodes.set_needs(member.pod.uid, node_of[member.pod], member.needs, identity)
            for claim in admission.claims:
                body = {
                    "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.key},
                    "spec": msgspec.to_builtins(specs[claim.key].spec),
                    "status": {"allocation": plain_json(claim.allocation)},
                }
                self.answers[claim.key] = (body, node_of[claim.reserved_for[0]], body["status"]["allocation"])
                self.inventory.set_claim(msgspec.convert(body, resource.ResourceClaim))
            self.running[entry.id] = RunningGang(
                namespace=entry.namespace,
                name=entry.name,
                uid=entry.uid,
                queue=entry.queue,
                namespace_labels=entry.namespace_labels,
                claims=tuple(claim.key for claim in admission.claims),
                priority=entry.priority,
                created=entry.created,
                started=self.now,
                size=entry.size,
                members=tuple(
                    RunningMember(pod=member.pod, node=node_of[member.pod], claims=member.claims, started=self.now)
                    for member in entry.members
                ),
                ends_by=None if entry.run_s is None else self.now + entry.run_s,
                relocation=relocation(entry) if entry.id in self.movable else None,
                movable=True if entry.id in self.movable else None,
                restart_s=self.restart_s,
            )
            self.requests[entry.id] = replace(entry, preemptor=False)
        return list(by_id.values())

    def _move(self, gang_id: str, place: Admission) -> None:
        """Its place is held from now on, as the controller would."""
        needs = {member.pod.uid: member.needs for member in self.requests[gang_id].members}
        spots = tuple(dataclasses.replace(spot, requests=needs[uid].requests) for uid, spot in spots_of(place).items())
        namespace, _, name = gang_id.partition("/")
        self.moving[gang_id] = held = Held((namespace, name), spots)
        self.requests_of_moving[gang_id] = self.requests[gang_id]
        self._hold(held)

    def _leave(self, gang_id: str, pods: set[PodRef]) -> None:
        running = self.running[gang_id]
        members = tuple(replace(member, leaving=True) if member.pod in pods else member for member in running.members)
        self.running[gang_id] = replace(running, members=members)
        spent: dict[str, int] = {}
        for member in running.members:
            for name in member.guarded_by if member.pod in pods else ():
                spent[name] = spent.get(name, 0) + 1
        self.budgets = tuple(
            replace(budget, allowed=budget.allowed - spent.get(budget.name, 0)) for budget in self.budgets
        )

    def _disrupted(self, queue: str) -> None:
        """One disruption less for the queue and those above it."""
        by_name = {spec.name: spec for spec in self.queues}
        above: set[str] = set()
        while queue in by_name:
            above.add(queue)
            queue = by_name[queue].parent or ""
        self.queues = tuple(
            replace(spec, evictions_left=spec.evictions_left - 1)
            if spec.name in above and spec.evictions_left is not None
            else spec
            for spec in self.queues
        )

    def gone(self) -> list[GangRequest]:
        """Pods that were leaving are gone. Gangs that stopped come back as requests, with the age they had."""
        back: list[GangRequest] = []
        for running in list(self.running.values()):
            staying = [member for member in running.members if not member.leaving]
            if len(staying) == len(running.members):
                continue
            kept = {uid for member in staying for uid in member.claims}
            for member in running.members:
                if member.leaving:
                    self.pods.pop(member.pod.uid, None)
                    self.nodes.drop_pod(member.pod.uid)
            for key in running.claims:
                if key not in kept and not key.startswith("move/"):
                    self.answers.pop(key, None)
                    self.inventory.drop_claim(key)
            if staying:
                left = tuple(key for key in running.claims if key in kept)
                self.running[running.id] = replace(running, members=tuple(staying), claims=left)
            else:
                del self.running[running.id]
                if running.id in self.requests:
                    back.append(self.requests.pop(running.id))
                if running.id in self.moving:
                    self._hold(self.moving[running.id])
        return back

    def end(self, gang_id: str) -> None:
        """The gang finished: its claims and pods are gone."""
        ended = self.running.pop(gang_id)
        for key in ended.claims:
            self.answers.pop(key, None)
            self.inventory.drop_claim(key)
        for uid in [uid for uid in self.pods if uid.startswith(f"{ended.uid}-")]:
            del self.pods[uid]
            self.nodes.drop_pod(uid)

    def drop_node(self, name: str) -> None:
        """The node is gone, and its slices with it; what its pods held they still hold."""
        del self.node_json[name]
        self.nodes.drop_node(name)
        for slice_name in [key for key, body in self.slice_json.items() if body["spec"].get("nodeName") == name]:
            del self.slice_json[slice_name]
            self.inventory.drop_slice(slice_name)

    def afresh(self) -> World:
        """The same cluster as a controller that has just started sees it."""
        other = World()
        other.class_json = self.class_json
        other.queues, other.flavors, other.running = self.queues, self.flavors, dict(self.running)
        other.budgets, other.now, other.reserve_after_s = self.budgets, self.now, self.reserve_after_s
        other.workload, other.restart_s = self.workload, self.restart_s
        for body in self.node_json.values():
            other.nodes.set_node(msgspec.convert(body, core.Node))
        other.inventory.set_slices(msgspec.convert(list(self.slice_json.values()), list[resource.ResourceSlice]))
        for pod, node in self.pods.values():
            other.nodes.set_pod(msgspec.convert(pod, core.Pod), node)
        for claim, _, _ in self.answers.values():
            other.inventory.set_claim(msgspec.convert(claim, resource.ResourceClaim))
        other.moving, other.requests_of_moving = dict(self.moving), dict(self.requests_of_moving)
        for held in self.moving.values():
            other._hold(held)
        return other

    def faults(self) -> list[str]:
        """What an independent judge finds wrong with all that is held now."""
        return faults(
            nodes=self.node_json.values(),
            classes=self.class_json.values(),
            slices=self.slice_json.values(),
            answers=self.answers.values(),
            together=False,
        )


def relocation(request: GangRequest) -> GangRequest:
    """What its pods would ask for if they were made again."""
    keys = {claim.key: f"move/{claim.key}" for claim in request.claims}
    return replace(
        request,
        members=tuple(replace(member, claims=tuple(keys[key] for key in member.claims)) for member in request.members),
        claims=tuple(replace(claim, key=keys[claim.key]) for claim in request.claims),
        preemptor=False,
        replaces=False,
    )


def _requests(needs: PodNeeds) -> dict[str, str]:
    return {name: f"{value}m" for name, value in needs.requests if name != "pods"}


def h100_world(nodes: int, *, gpus: int = 8, racks: int = 0) -> World:
    """HGX H100 nodes; with racks, labelled so many nodes per rack."""
    world = World()
    for number in range(nodes):
        labels = {"rack": f"rack-{number // racks}"} if racks else {}
        world.add_node(f"node-{number:05d}", [gpu(minor) for minor in range(gpus)], labels=labels)
    return world


def nodes_of(plan: Plan, name: str) -> list[str]:
    """The nodes of an admitted gang's pods, in order of its members; [] when it was not admitted."""
    return [
        assignment.node
        for admission in plan.admissions
        if admission.name == name
        for assignment in admission.assignments
    ]


def devices_of(plan: Plan, name: str) -> list[str]:
    """The devices of an admitted gang's claims, in order."""
    return [
        result.device
        for admission in plan.admissions
        if admission.name == name
        for claim in admission.claims
        for result in claim.allocation.devices.results
    ]
