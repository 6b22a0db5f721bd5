"""The comparison of two futures, without and with the change. Takes seconds of CPU, and leaves the snapshot changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from fairlead.engine.forecast.forecast import CpuBudget
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, Comparison, compare
from fairlead.engine.types.gangs import GangRequest
from fairlead.ui.what_if import changes
from fairlead.ui.what_if.question import Question
from fairlead.ui.what_if.world import World

Json = dict[str, Any]
_POLICY = "TenancyPolicy"
FIRST_S = 0.3  # of CPU, for each future of the first version of the table
BUDGET_S = 8.0  # of the last one


def answer(question: Question, world: World, *, quick: bool = False) -> Comparison:
    """`quick`: a first look. Raises ChangeError."""
    snapshot, now = world.snapshot, world.now
    change = Change(
        add=changes.new_nodes(question.add_nodes, snapshot, question.drivers, own_profiles=question.own_profiles),
        remove=tuple(dict.fromkeys(question.remove)),
        queues=changes.queues(question.queue, snapshot),
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
    from fairlead.ui.what_if import priorities, workloads
    from fairlead.webhook import offline

    seen = offline.World(drivers=question.drivers, classes=dict(world.snapshot.classes))
    for document in (*world.templates, *question.submit):
        seen.add(document)
    labels = {gang.namespace: dict(gang.namespace_labels) for gang in world.snapshot.running}
    labels |= {gang.namespace: dict(gang.namespace_labels) for gang in world.snapshot.gangs}
    labels |= world.namespaces
    seen.namespaces |= {name: each for name, each in labels.items() if name not in seen.namespaces}
    known = priorities.read(question.submit, cluster=world.priority_classes, unread=world.no_priority_classes)
    gangs = workloads.gangs(question.submit, seen, {**labels, **seen.namespaces}, known, world.now)
    return tuple(_with_policies(gangs, [*world.policies, *question.submit]))


def _with_policies(gangs: Iterable[GangRequest], documents: Iterable[Json]) -> Iterator[GangRequest]:
    """With what TenancyPolicies say of models where the gang does not. Of one name the last of `documents` counts."""
    from fairlead.controller.watch.policy_bounds import models_of, read_policies

    named = {str(each["metadata"]["name"]): each for each in documents if each.get("kind", _POLICY) == _POLICY}
    policies = read_policies(named.values())
    for gang in gangs:
        labels = {"kubernetes.io/metadata.name": gang.namespace, **gang.namespace_labels}
        yield replace(gang, models=gang.models or models_of(policies, gang.namespace, labels))
