"""The facts of a live cluster, by the lists that `queues`, `gangs` and `explain` make, with the user's own rights.

Lists are made when a page is asked for, and again when they are older than `FRESH_S`; while no page is asked for, nothing is asked. So a
reader never costs more than a command every `FRESH_S` seconds; a gang's page lists its events, too. A list that is refused leaves its part of the pages empty, with the
reason; one of all namespaces that is refused is made of the user's own. When the cluster does not answer, the facts of before are
kept, and say so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from fairlead.controller.watch.optional import DISCOVERY_S, version_of
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.core import Node, Pod
from fairlead.kube.limits import Clock
from fairlead.kube.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.model.facts import Facts, Hardware
from fairlead.ui.model.holders import holders, reserved, usage_by_device
from fairlead.ui.model.usual import usual_requests
from fairlead.ui.reading.errors import NotReadError, not_read, rules_not_read

T = TypeVar("T")
FRESH_S = 5.0
ANSWER_S = 30.0
EVENTS_S = 5.0


class LiveSource:
    """`namespace` is the user's own: what may be listed there is shown where all namespaces may not be listed."""

    def __init__(
        self, client: Client, *, namespace: str = "default", clock: Clock = time.monotonic, wall: Clock = time.time
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._wall = wall
        self._lock = asyncio.Lock()
        self._facts: Facts | None = None
        self._read_at = 0.0  # of the clock
        self._tables = _Tables()
        self._rules: Resource[DeviceTaintRule] | None = None  # in the version that is served; None: in none
        self._discovered_at: float | None = None  # of the clock

    async def facts(self) -> Facts:
        async with self._lock:  # requests at one time are one read
            if self._facts is None or self._clock() - self._read_at >= FRESH_S:
                await self._read()
            assert self._facts is not None
            return self._facts

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        """One list, of the events on this object alone."""
        chosen = f"involvedObject.kind={kind},involvedObject.name={name}"
        try:
            async with asyncio.timeout(EVENTS_S):
                return tuple((await self._client.list(resources.EVENTS, namespace, fields=chosen)).items)
        except (errors.ApiError, TimeoutError):
            return ()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._facts = await self._lists()
        except (errors.ApiError, TimeoutError) as error:
            if isinstance(error, errors.ApiError):
                said = str(not_read(error, "list", resources.GANGS, None))
            else:
                said = f"the cluster did not answer all lists within {ANSWER_S:g} s; try again"
            if self._facts is None:
                raise NotReadError(said) from error
            self._facts = replace(self._facts, late=f"{said}; this is as of {timestamps.seconds(self._facts.at)}")
        self._read_at = self._clock()

    async def _lists(self) -> Facts:
        refused: dict[str, str] = {}
        now = self._wall()
        (gangs, pods, queues), (claims, nodes, slices, classes), rules = await asyncio.gather(
            asyncio.gather(
                self._list(resources.GANGS, refused),
                self._list(resources.raw(resources.PODS), refused),
                self._list(resources.QUEUES, refused),
            ),
            asyncio.gather(
                self._list(resources.RESOURCE_CLAIMS, refused),
                self._list(resources.NODES, refused),
                self._list(resources.RESOURCE_SLICES, refused),
                self._list(resources.DEVICE_CLASSES, refused),
            ),
            self._taint_rules(refused),
        )
        hardware = None
        if "nodes" not in refused and "resourceslices" not in refused:
            hardware = self._tables.hardware(gangs, pods, claims, nodes, slices, classes, rules, now=now)
        return Facts(
            at=now,
            hardware=hardware,
            gangs=tuple(_by_name(gangs)),
            pods=tuple(_by_name(pods)),
            queues=tuple(_by_name(queues)),
            claims=tuple(claims),
            refused=refused,
        )

    async def _taint_rules(self, refused: dict[str, str]) -> list[DeviceTaintRule]:
        """Not every cluster serves them: which version it serves, if any, is looked up now and then."""
        if self._discovered_at is None or self._clock() - self._discovered_at >= DISCOVERY_S:
            kind = resources.DEVICE_TAINT_RULES
            try:
                version = await version_of(self._client, kind.group, resources.DEVICE_TAINT_RULE_VERSIONS, kind.plural)
            except errors.Unreachable:
                raise
            except errors.ApiError:
                version = None  # discovery is refused or broken: the rest of the pages needs none
            self._rules = None if version is None else replace(kind, version=version)
            self._discovered_at = self._clock()
        if self._rules is None:
            return []
        try:
            return (await self._client.list(self._rules)).items
        except errors.Forbidden as error:
            refused[self._rules.plural] = rules_not_read(error, self._rules)
        except errors.NotFound:
            self._discovered_at = None
        return []

    async def _list(self, resource: Resource[T], refused: dict[str, str]) -> list[T]:
        try:
            return (await self._client.list(resource)).items
        except (errors.Forbidden, errors.NotFound) as error:
            refused[resource.plural] = str(not_read(error, "list", resource, None))
            if not resource.namespaced or isinstance(error, errors.NotFound):
                return []
        try:
            found = (await self._client.list(resource, self._namespace)).items
        except (errors.Forbidden, errors.NotFound) as error:
            refused[resource.plural] = (
                f"{not_read(error, 'list', resource, self._namespace)}; that namespace is the one of your kubeconfig's context, and "
                "in all namespaces you may not either"
            )
            return []
        refused[resource.plural] = (
            f"{resource.plural} of other namespaces than {self._namespace}: you may not list them"
        )
        return found


class _Tables:
    """Kept from one read to the next: what did not change is not built again."""

    def __init__(self) -> None:
        self._inventory = Inventory()
        self._nodes = NodeTable()
        self._slices: dict[str, ResourceSlice] = {}
        self._claims: set[str] = set()
        self._rules: dict[str, DeviceTaintRule] = {}

    def hardware(
        self,
        gangs: Iterable[Raw],
        raw_pods: Iterable[Raw],
        claims: list[ResourceClaim],
        nodes: list[Node],
        slices: list[ResourceSlice],
        classes: list[DeviceClass],
        rules: list[DeviceTaintRule],
        *,
        now: float,
    ) -> Hardware:
        self._set_slices(slices)
        self._set_rules(rules)
        there = {claim.metadata.uid for claim in claims}
        for uid in self._claims - there:
            self._inventory.drop_claim(uid)
        self._claims = there
        for claim in claims:
            self._inventory.set_claim(claim)
        pods = list(_typed(raw_pods))
        self._set_nodes(nodes, pods)
        by_name = {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}
        return Hardware(
            inventory=self._inventory,
            nodes=self._nodes,
            classes={each.metadata.name: each for each in classes},
            workload=usual_requests(pods, by_name),
            holders=holders(claims, raw_pods, gangs),
            usage=usage_by_device(claims, now=now),
            reserved=reserved(gangs),
        )

    def _set_slices(self, slices: list[ResourceSlice]) -> None:
        now = {each.metadata.name: each for each in slices}
        for name in self._slices.keys() - now.keys():
            self._inventory.drop_slice(name)
        changed = [
            each
            for name, each in now.items()
            if name not in self._slices
            or self._slices[name].metadata.resource_version != each.metadata.resource_version
            or not each.metadata.resource_version
        ]
        if changed:
            self._inventory.set_slices(changed)
        self._slices = now

    def _set_rules(self, rules: list[DeviceTaintRule]) -> None:
        """A rule that changed makes every node be looked at again."""
        now = {each.metadata.name: each for each in rules}
        for name in self._rules.keys() - now.keys():
            self._inventory.drop_taint_rule(name)
        for name, each in now.items():
            if name not in self._rules or self._rules[name].spec != each.spec:
                self._inventory.set_taint_rule(each)
        self._rules = now

    def _set_nodes(self, nodes: list[Node], pods: list[Pod]) -> None:
        for name in {node.name for node in self._nodes.all()} - {node.metadata.name for node in nodes}:
            self._nodes.drop_node(name)
        for node in nodes:
            self._nodes.set_node(node)
        for uid in set(self._nodes.pods()) - {pod.metadata.uid for pod in pods}:
            self._nodes.drop_pod(uid)
        for pod in pods:
            self._nodes.set_pod(pod)


def _typed(pods: Iterable[Raw]) -> Iterable[Pod]:
    """Every pod counts against its node. One that is not of the API's form does not."""
    for raw in pods:
        try:
            yield msgspec.convert(raw, Pod)
        except msgspec.ValidationError:
            continue


def _by_name(found: list[Any]) -> list[Raw]:
    return sorted(found, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))
