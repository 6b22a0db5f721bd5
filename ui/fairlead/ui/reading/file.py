"""The facts of a snapshot's file (`fairlead snapshot > FILE`): read once, decided on once, and the same for as long as it is shown.

A snapshot holds what a decision starts from, not what was decided. So the decision is made, and what it says is shown: a gang that it
starts is shown as Waiting with reason Queued, and everything else as the controller would report it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.controller.report.queue_status import QueueShown, plain, queue_status
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.plan.decide import decide
from fairlead.engine.queues.limits import held_queues
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.form import FactsError
from fairlead.history.facts.snapshot_file import load
from fairlead.kube import timestamps
from fairlead.kube.device_usage import DeviceId
from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import Facts, Hardware, Holder, Usage
from fairlead.ui.reading.cluster import NotReadError


class FileSource:
    """Raises NotReadError for a file that is no snapshot."""

    def __init__(self, path: Path) -> None:
        try:
            found = load(files.unpacked(path))
        except (FactsError, UnreadableError, OSError) as error:
            raise NotReadError(f"{path}: {error}") from error
        plan = decide(found.snapshot, found.now)
        self._facts = facts(found.snapshot, plan, found.now, origin=path.name)

    async def facts(self) -> Facts:
        return self._facts

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        return ()  # a snapshot has none


STARTS = "the decision on this snapshot starts it"


def facts(snapshot: Snapshot, plan: Plan, now: float, *, origin: str) -> Facts:
    reservations = {node: each.id for each in plan.reservations for node in each.nodes}
    running = {gang.id: gang for gang in snapshot.running}
    gangs = [*map(_running, snapshot.running), *_pending(snapshot, plan, running)]
    return Facts(
        at=now,
        hardware=Hardware(
            inventory=snapshot.inventory,
            nodes=snapshot.nodes,
            classes=snapshot.classes,
            workload=snapshot.workload,
            holders={
                claim: Holder(gang=gang.id, queue=gang.queue or "")
                for gang in snapshot.running
                for claim in gang.claims
            },
            usage=dict(_usage(snapshot)),
            reserved=reservations,
            evicting=frozenset(
                gang.id for gang in snapshot.running if any(each.evicted_at is not None for each in gang.members)
            ),
        ),
        gangs=tuple(sorted(gangs, key=lambda raw: (raw["metadata"]["namespace"], raw["metadata"]["name"]))),
        queues=tuple(_queues(snapshot, plan, now)),
        origin=origin,
    )


def _usage(snapshot: Snapshot) -> Iterable[tuple[DeviceId, Usage]]:
    for gang in snapshot.running:
        for uid in gang.claims if gang.idle is not None else ():
            claim = snapshot.inventory.claim(uid)
            for device in claim.devices if claim is not None else ():
                assert gang.idle is not None
                yield DeviceId(device.ref.driver, device.ref.pool, device.ref.device), Usage(gang.idle.since)


def _running(gang: RunningGang) -> Raw:
    nodes = sorted({member.node for member in gang.members if member.node})
    # An eviction that is set for a time has not ended them yet.
    stays = sum(not member.leaving or member.done or member.evicted_at is not None for member in gang.members)
    status = {
        "phase": "Running",
        "reason": "MembersRun" if stays >= gang.size else "Replacing" if stays else "Stopping",
        "queue": gang.queue,
        "members": len(gang.members),
        "ready": stays,
        "nodes": nodes,
    }
    return _object(gang, gang.size, status)


def _pending(snapshot: Snapshot, plan: Plan, running: Mapping[str, RunningGang]) -> Iterable[Raw]:
    waiting = {each.id: each for each in plan.waiting}
    reserved = {each.id: list(each.nodes) for each in plan.reservations}
    for gang in snapshot.gangs:
        if gang.id in running:
            continue  # it runs, and more of its pods wait
        status: dict[str, Any] = {"phase": "Waiting", "members": len(gang.members), "ready": 0, "queue": gang.queue}
        answer = waiting.get(gang.id)
        if answer is None:
            status |= {"reason": "Queued", "message": STARTS}
        else:
            status |= {
                "queue": answer.queue or gang.queue,
                "position": answer.place,
                "reason": answer.reason.code.value,
                "message": str(answer.reason),
                "why": explanation(answer.reason),
            }
        yield _object(gang, gang.size, status | {"reservedNodes": reserved.get(gang.id)})


def _object(gang: GangRequest | RunningGang, size: int, status: dict[str, Any]) -> Raw:
    created = {"creationTimestamp": timestamps.seconds(gang.created)} if gang.created else {}
    return {
        "metadata": {"namespace": gang.namespace, "name": gang.name, "uid": gang.uid, **created},
        "spec": {"size": size},
        "status": {key: value for key, value in status.items() if value is not None},
    }


def _queues(snapshot: Snapshot, plan: Plan, now: float) -> Iterable[Raw]:
    uses, held = {use.name: use for use in plan.queues}, held_queues(snapshot.queues)
    for queue in snapshot.queues:
        problems = tuple(each for each in plan.problems if each.kind == "Queue" and each.name == queue.name)
        use = uses.get(queue.name)
        shown = None if use is None else QueueShown(use=use, problems=problems, hold=str(held.get(queue.name, "")))
        status = {} if shown is None else queue_status(shown, None, before={}, generation=1, now=now)
        quotas = [
            {"flavor": quota.flavor, "deserved": plain(quota.deserved)}
            | ({} if quota.limit is None else {"limit": plain(quota.limit)})
            for quota in queue.quotas
        ]
        parent = {"parent": queue.parent} if queue.parent else {}
        selector: Raw = {} if queue.namespace_selector is None else {"namespaceSelector": {}}
        yield {"metadata": {"name": queue.name}, "spec": {"flavors": quotas, **parent, **selector}, "status": status}
