"""The comparison of two futures, without and with the change. Takes seconds of CPU, and leaves the snapshot changed.

Flags of a change are read here: `4xhgx-h100`, `team.deserved=16`. ChangeError names the flag, its value, and how to write it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.forecast.forecast import CpuBudget
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, ChangeError, Comparison, NewNode, compare
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import milli
from fairlead.engine.types.settings import FlavorQuota, QueueSpec
from fairlead.engine.types.values import amount
from fairlead.kube import errors, resource, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.kube.objects import ObjectMeta
from fairlead.kube.quantity import QuantityError
from fairlead.ui.reading.cluster import Cluster, NotReadError
from fairlead.ui.what_if.question import Question
from fairlead.ui.what_if.world import World, of_cluster, of_file
from fairlead.ui.what_if.written import as_json, shown

Json = dict[str, Any]
_POLICY = "TenancyPolicy"
FIRST_S = 0.3  # of CPU, for each future of the first version of the table
BUDGET_S = 8.0  # of the last one


def answer(question: Question, world: World, *, quick: bool = False) -> Comparison:
    """`quick`: a first look. Raises ChangeError."""
    snapshot, now = world.snapshot, world.now
    change = Change(
        add=_new_nodes(question.add_nodes, snapshot, question.drivers, own_profiles=question.own_profiles),
        remove=tuple(dict.fromkeys(question.remove)),
        queues=_queues(question.queue, snapshot),
        submit=_submitted(question, world),
    )
    world.history.note(snapshot.gangs, snapshot.running, now, lambda _: False)
    return compare(
        snapshot,
        now,
        change,
        RunTimes(world.history.records(now)),
        horizon_s=question.horizon_s,
        samples=question.samples,
        budget=CpuBudget(FIRST_S if quick else BUDGET_S, _since(time.process_time())),
        quick=quick,
    )


def _since(began: float) -> Callable[[], float]:
    return lambda: time.process_time() - began


def _submitted(question: Question, world: World) -> Any:
    if not question.submit:
        return ()
    from fairlead.ui.what_if import workloads
    from fairlead.webhook import offline

    seen = offline.World(
        drivers=question.drivers, shared_drivers=question.shared_drivers, classes=dict(world.snapshot.classes)
    )
    for document in (*world.templates, *_members_by_default(world), *question.submit):
        seen.add(document)
    labels = {gang.namespace: dict(gang.namespace_labels) for gang in world.snapshot.running}
    labels |= {gang.namespace: dict(gang.namespace_labels) for gang in world.snapshot.gangs}
    labels |= world.namespaces
    seen.namespaces |= {name: each for name, each in labels.items() if name not in seen.namespaces}
    known = workloads.read(question.submit, cluster=world.priority_classes, unread=world.no_priority_classes)
    gangs = workloads.gangs(question.submit, seen, {**labels, **seen.namespaces}, known, world.now)
    return tuple(_with_policies(gangs, [*world.policies, *question.submit]))


def _members_by_default(world: World) -> Iterator[Json]:
    """What the cluster's TenancyPolicies and Queues say of members without devices, and nothing else of them."""
    for raw in world.policies:
        yield from _only(raw, _POLICY, ("mode", "namespaceSelector", "members"))
    if any((raw.get("spec") or {}).get("members") is not None for raw in world.queues):
        for raw in world.queues:
            yield from _only(raw, "Queue", ("parent", "namespaceSelector", "members"), every=True)


def _only(raw: Json, kind: str, fields: Iterable[str], *, every: bool = False) -> Iterator[Json]:
    """`every`: also one that says nothing of members, since others inherit through it."""
    spec = raw.get("spec") or {}
    if every or spec.get("members") is not None:
        kept = {name: spec[name] for name in fields if name in spec}
        yield {
            "apiVersion": names.API_VERSION,
            "kind": kind,
            "metadata": {"name": raw["metadata"]["name"]},
            "spec": kept,
        }


def _with_policies(gangs: Iterable[GangRequest], documents: Iterable[Json]) -> Iterator[GangRequest]:
    """With what TenancyPolicies say of models where the gang does not. Of one name the last of `documents` counts."""
    from fairlead.controller.watch.rules import models_of, read_policies

    named = {str(each["metadata"]["name"]): each for each in documents if each.get("kind", _POLICY) == _POLICY}
    policies = read_policies(named.values())
    for gang in gangs:
        labels = {"kubernetes.io/metadata.name": gang.namespace, **gang.namespace_labels}
        yield replace(gang, models=gang.models or models_of(policies, gang.namespace, labels))


NODES_MAX = 10_000
QUOTA_FIELDS = ("deserved", "limit", "weight")
_ADD = re.compile(r"([0-9]{1,5})x(.+)")
_QUEUE = re.compile(r"([^=]+)=(.*)")
_ROOM = {"cpu": milli("192"), "memory": milli("2Ti"), "pods": milli("110")}  # of a node that is made from a profile


def _new_nodes(
    texts: Iterable[str], snapshot: Snapshot, drivers: tuple[str, ...], *, own_profiles: bool
) -> tuple[NewNode, ...]:
    """`NxNAME`: N nodes like the node NAME of the cluster, or of the simulated profile NAME.

    `own_profiles`: NAME may be the path of a profile's file, too.
    """
    found: list[NewNode] = []
    for text in texts:
        match = _ADD.fullmatch(text)
        count = int(match[1]) if match else 0
        if match is None or not 1 <= count <= NODES_MAX:
            raise ChangeError(
                f"--add-nodes {text}: write a number up to {NODES_MAX}, x, and a node or a profile: 4xhgx-h100"
            )
        make = _like_node(match[2], snapshot) or _of_profile(text, match[2], drivers, own_profiles=own_profiles)
        taken = {each.info.name for each in found}
        number = 0
        for _ in range(count):
            number += 1
            while snapshot.nodes.get(f"new-{number}") is not None or f"new-{number}" in taken:
                number += 1
            found.append(make(f"new-{number}"))
    return tuple(found)


def _like_node(name: str, snapshot: Snapshot) -> Callable[[str], NewNode] | None:
    """None where the cluster has no such node."""
    from fairlead.engine.inventory.pool import published_slice

    like = snapshot.nodes.get(name)
    if like is None:
        return None
    specs = []
    for slice_name in sorted(snapshot.inventory.slice_names()):
        entry = snapshot.inventory.slice_entry(slice_name)
        if entry is not None and (
            any(device.node == name for device in entry.devices) or (not entry.devices and entry.pool_name == name)
        ):
            specs.append(published_slice(entry))
    if not specs:
        raise ChangeError(f"--add-nodes: node {name} publishes no devices; name one that does, or a profile")

    def make(new: str) -> NewNode:
        labels = {**like.labels, **({"kubernetes.io/hostname": new} if "kubernetes.io/hostname" in like.labels else {})}
        info = NodeInfo(name=new, labels=labels, taints=like.taints, allocatable=dict(like.allocatable))
        return NewNode(info=info, slices=tuple(_slice(new, number, spec) for number, spec in enumerate(specs)))

    return make


def _slice(node: str, number: int, spec: resource.ResourceSliceSpec) -> resource.ResourceSlice:
    pool = msgspec.structs.replace(spec.pool, name=node)
    moved = msgspec.structs.replace(spec, node_name=node, pool=pool)
    return resource.ResourceSlice(metadata=ObjectMeta(name=f"{node}-{spec.driver}-{number}"), spec=moved)


def _of_profile(text: str, name: str, drivers: tuple[str, ...], *, own_profiles: bool) -> Callable[[str], NewNode]:
    from fairlead.driver.backend import factory  # not every command pays for the driver
    from fairlead.driver.backend.interface import BackendError
    from fairlead.driver.backend.profiles.loading import ProfileError, known
    from fairlead.driver.publish import slices

    if not own_profiles and name not in known():
        raise ChangeError(
            f"--add-nodes {text}: the cluster has no node {name}, and there is no such profile: there are {', '.join(known())}"
        )
    try:
        backend = factory.open_backend(f"simulated:{name}", node="new", data=None)
    except (BackendError, ProfileError, factory.BackendSpecError) as error:
        raise ChangeError(
            f"--add-nodes {text}: the cluster has no node {name}, and there is no such profile: {error}"
        ) from None
    try:
        inventory = backend.inventory()
    finally:
        backend.close()
    bodies = slices.build(inventory).slices

    def make(node: str) -> NewNode:
        pool = resource.ResourcePool(name=node, generation=1, resource_slice_count=len(bodies))
        specs = [
            resource.ResourceSliceSpec(
                driver=drivers[0], pool=pool, node_name=node, devices=body.devices, shared_counters=body.shared_counters
            )
            for body in bodies
        ]
        made = tuple(_slice(node, number, spec) for number, spec in enumerate(specs))
        labels = {"kubernetes.io/hostname": node}
        return NewNode(info=NodeInfo(name=node, labels=labels, allocatable=dict(_ROOM)), slices=made)

    return make


def _queues(texts: Iterable[str], snapshot: Snapshot) -> dict[str, QueueSpec]:
    """`QUEUE.FIELD=VALUE` or `QUEUE.FLAVOR.FIELD=VALUE`; FIELD is deserved, limit, weight, or priority (of the queue)."""
    known = {spec.name: spec for spec in snapshot.queues}
    found: dict[str, QueueSpec] = {}
    for text in texts:
        match = _QUEUE.fullmatch(text)
        path, value = (match[1], match[2]) if match else (text, "")
        head, _, name = path.rpartition(".")
        if match is None or not head or name not in (*QUOTA_FIELDS, "priority"):
            raise ChangeError(
                f"--queue {text}: write QUEUE.FIELD=VALUE, FIELD one of {', '.join(QUOTA_FIELDS)}, priority"
            )
        queue, flavor = _named(text, head, known)
        spec = found.get(queue, known[queue])
        try:
            found[queue] = (
                replace(spec, priority=int(value))
                if name == "priority"
                else _with_quota(text, spec, flavor, name, value)
            )
        except (QuantityError, ValueError) as error:
            if isinstance(error, ChangeError):
                raise
            raise ChangeError(f"--queue {text}: {value!r} is no number: {error}") from None
    return found


def _named(text: str, head: str, known: dict[str, QueueSpec]) -> tuple[str, str | None]:
    """The queue, and the flavor where one is named. Names of queues may have dots."""
    if head in known:
        return head, None
    queue, _, flavor = head.rpartition(".")
    if queue in known:
        return queue, flavor
    listed = ", ".join(sorted(known)[:8]) or "none"
    raise ChangeError(f"--queue {text}: no queue is called {head}; there are: {listed}")


def _with_quota(text: str, spec: QueueSpec, flavor: str | None, name: str, value: str) -> QueueSpec:
    flavors = [quota.flavor for quota in spec.quotas]
    if flavor is None:
        if len(flavors) != 1:
            listed = ", ".join(flavors) or "none; add it to the Queue first"
            raise ChangeError(f"--queue {text}: say for which flavor, as {spec.name}.FLAVOR.{name}: {listed}")
        flavor = flavors[0]
    if flavor not in flavors:
        raise ChangeError(
            f"--queue {text}: queue {spec.name} has no quota of flavor {flavor!r}; it has {', '.join(flavors)}"
        )
    return replace(
        spec,
        quotas=tuple(_quota(quota, name, value) if quota.flavor == flavor else quota for quota in spec.quotas),
    )


def _quota(quota: FlavorQuota, name: str, value: str) -> FlavorQuota:
    number = amount(value)
    if number < 0:
        raise ValueError("it is negative")
    if name == "weight":
        return replace(quota, weight=float(number))
    return replace(quota, limit=number) if name == "limit" else replace(quota, deserved=number)


def reply(asked: Json, submit: list[Json]) -> Json:
    """`submit`: the objects of the question's manifests. JSON is a text already, so that the server need not write megabytes."""
    question = Question(
        **asked["question"]
        | {
            "drivers": tuple(asked["question"]["drivers"]),
            "shared_drivers": tuple(asked["question"]["shared_drivers"]),
            "submit": submit,
        }
    )
    try:
        world = _world(asked["where"], question)
        found = answer(question, world)
    except ChangeError as error:
        return {"error": str(error), "kind": "change"}
    except (NotReadError, CredentialsError, errors.ApiError, OSError) as error:
        return {"error": str(error), "kind": "cluster"}
    return {"json": json.dumps(as_json(found, world.now), indent=2) + "\n", "shown": asdict(shown(found))}


def _world(where: Json, question: Question) -> World:
    if where.get("snapshot"):
        return of_file(Path(where["snapshot"]))

    async def read() -> World:
        kubeconfig = Path(where["kubeconfig"]) if where.get("kubeconfig") else None
        async with Client.connect(kubeconfig, context=where.get("context"), user_agent="fairlead-ui") as client:
            cluster = Cluster(client)
            await cluster.list(
                resources.QUEUES
            )  # a cluster that is away is said at once: the lists that follow are tried for minutes
            return await of_cluster(cluster, question)

    return asyncio.run(read())
