"""What a change of the cluster would do: one simulated future without it and one with it, over the same drawn run times.

A change adds or removes nodes, sets fields of queues, submits gangs. Works on the tables of a snapshot of its own, and leaves
them changed: read a snapshot for each comparison. Which gangs are evicted includes those that run on removed nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from msgspec.structs import replace

from fairlead.engine.forecast.forecast import (
    NO_BUDGET,
    RESOLUTIONS,
    CpuBudget,
    GangForecast,
    duration,
    no_time,
    quantile,
)
from fairlead.engine.forecast.run_times import Draws, RunTimes
from fairlead.engine.forecast.simulation import Resolution, Sample, Simulation
from fairlead.engine.forecast.submissions import Submissions, resubmitted
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan, QueueUse, Waiting
from fairlead.engine.types.settings import QueueSpec
from fairlead.kube import resource

GANGS_MAX = (300, 800, 5_000)  # waiting and running, up to which each of `RESOLUTIONS` is used


class ChangeError(ValueError):
    """The change cannot be made to this cluster; the message says what and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    info: NodeInfo
    slices: tuple[resource.ResourceSlice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    add: tuple[NewNode, ...] = ()
    remove: tuple[str, ...] = ()  # names of nodes
    queues: Mapping[str, QueueSpec] = field(default_factory=dict)  # by name, as they would be
    submit: tuple[GangRequest, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.add or self.remove or self.queues or self.submit)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStart:
    """Waits in seconds from now; None: beyond the horizon. `never` says why it cannot start at all, "" where it can."""

    queue: str
    p50_s: float | None
    p90_s: float | None
    never: str = ""
    on_hold: str = ""  # by which hold, where it waits for a user to resume it


@dataclass(frozen=True, slots=True, kw_only=True)
class Future:
    starts: Mapping[str, GangStart]  # by gang id
    evicted: Mapping[str, str]  # gang id: for which gang, or why
    queues: tuple[QueueUse, ...]  # of the decision now
    devices: int
    used_now: int
    utilisation: float  # of the devices, on average until `until_s`; with one sample of that one
    fragmented: float  # of the free devices, the part on nodes that are partly in use
    until_s: float  # how far ahead it looks, seconds
    samples: int
    note: str = ""  # what the budget cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    before: Future
    after: Future


def compare(
    snapshot: Snapshot,
    now: float,
    change: Change,
    run_times: RunTimes,
    *,
    horizon_s: float,
    seed: int = 0,
    samples: int = 1,
    budget: CpuBudget = NO_BUDGET,
    requests: Mapping[str, GangRequest] | None = None,
    quick: bool = False,
) -> Comparison:
    """With one sample every run lasts its median. `budget`: for the simulation of each future; once it is spent both futures look
    only so far ahead.

    `quick`: shares, and what cannot start, are judged by the first gangs of each kind, and gangs that the budget leaves out
    start at their queue's pace: for a first look at thousands of gangs.
    Raises ChangeError for a change that says nothing, or that names what is not there, and for a horizon that is not positive.
    """
    if horizon_s <= 0:
        raise ChangeError(f"horizon: {horizon_s:g} s is no time to look ahead; write one such as 24h")
    if change.empty:
        raise ChangeError(
            "nothing is changed: name nodes to add or remove, a field of a queue, or a workload to submit"
        )
    snapshot = snapshot.simulated()
    _check(snapshot, change)
    known = _requests(snapshot, requests or {}, change)
    resolution = _resolution(len(snapshot.gangs) + len(snapshot.running))
    futures = _Futures(now, run_times, known, horizon_s, _Draw(seed, samples, budget), resolution, Engine(), quick)
    before = futures.of(snapshot, {}, budget.total_s, horizon_s)
    changed, stopped = _apply(snapshot, change, known)
    after = futures.of(changed, stopped, 2 * budget.total_s, before.until_s)
    return Comparison(before=before, after=after)


def _resolution(gangs: int) -> Resolution:
    """Coarser the more there are: 2,000 gangs start in as many steps as 50."""
    return RESOLUTIONS[sum(gangs > most for most in GANGS_MAX)]


def _check(snapshot: Snapshot, change: Change) -> None:
    for name in change.remove:
        if snapshot.nodes.get(name) is None:
            raise ChangeError(f"node {name}: there is none of that name to remove{_near(name, snapshot)}")
    for node in change.add:
        if snapshot.nodes.get(node.info.name) is not None:
            raise ChangeError(f"node {node.info.name}: there is one of that name already")
    known = {spec.name for spec in snapshot.queues}
    for name in change.queues:
        if name not in known:
            listed = ", ".join(sorted(known)[:8]) or "none"
            raise ChangeError(f"queue {name}: there is none of that name; there are: {listed}")


def _near(name: str, snapshot: Snapshot) -> str:
    alike = [node.name for node in snapshot.nodes.all() if node.name.startswith(name[:4])][:4]
    return f"; there are {', '.join(alike)}" if alike else ""


def _requests(snapshot: Snapshot, known: Mapping[str, GangRequest], change: Change) -> dict[str, GangRequest]:
    """What running gangs would request again; gangs on removed nodes need it, others if they are evicted."""
    found = dict(known)
    for gang in snapshot.running:
        if gang.id not in found and (request := resubmitted(gang, snapshot)) is not None:
            found[gang.id] = request
    return found


def _apply(snapshot: Snapshot, change: Change, requests: Mapping[str, GangRequest]) -> tuple[Snapshot, dict[str, str]]:
    """The changed snapshot, and the gangs that it stops, with why."""
    inventory, nodes = snapshot.inventory, snapshot.nodes
    removed = set(change.remove)
    stopped: dict[str, str] = {}
    again: list[GangRequest] = []
    running = []
    for gang in snapshot.running:
        hit = sorted({member.node for member in gang.members} & removed)
        if not hit:
            running.append(gang)
            continue
        stopped[gang.id] = f"node {hit[0]} is removed"
        for uid in gang.claims:
            inventory.drop_claim(uid)
        for member in gang.members:
            nodes.drop_pod(member.pod.uid)
        if gang.id in requests:
            again.append(replace(requests[gang.id], hold=gang.hold))
    for name in change.remove:
        nodes.drop_node(name)
        for slice_name in _slices_of(snapshot, name):
            inventory.drop_slice(slice_name)
    for node in change.add:
        nodes.set_info(node.info)
    inventory.set_slices([each for node in change.add for each in node.slices])
    queues = tuple(change.queues.get(spec.name, spec) for spec in snapshot.queues)
    gangs = (*snapshot.gangs, *again, *change.submit)
    return (
        replace(
            snapshot,
            gangs=tuple(sorted(gangs, key=lambda gang: gang.id)),
            running=tuple(running),
            queues=queues,
        ),
        stopped,
    )


def _slices_of(snapshot: Snapshot, node: str) -> list[str]:
    """Names of the slices of the pools that have devices on that node only."""
    found = []
    for name in list(snapshot.inventory.slice_names()):
        entry = snapshot.inventory.slice_entry(name)
        if entry is not None and (
            {device.node for device in entry.devices} == {node} or (not entry.devices and entry.pool_name == node)
        ):
            found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class _Draw:
    seed: int
    wanted: int
    budget: CpuBudget

    def samples(self, simulation: Simulation, budget_s: float) -> list[Sample]:
        """At least one, and more while so much lasts; with one that of the medians. The first may be cut at a time that it states."""
        spent_s = self.budget.spent_s
        end_s = spent_s() + budget_s
        drawn: list[Sample] = []
        while not drawn or (len(drawn) < self.wanted and spent_s() < end_s):
            draws = Draws(self.seed, len(drawn), middle=self.wanted == 1)
            drawn.append(simulation.sample(draws, partial(self.budget.over, end_s)))
        return drawn


@dataclass(frozen=True, slots=True)
class _Futures:
    """What both futures have in common. `horizon_s` was asked for."""

    now: float
    run_times: RunTimes
    requests: Mapping[str, GangRequest]
    horizon_s: float
    draw: _Draw
    resolution: Resolution
    engine: Engine
    quick: bool

    def of(self, snapshot: Snapshot, stopped: Mapping[str, str], budget_s: float, wanted_s: float) -> Future:
        """`wanted_s` of the horizon are simulated. `stopped`: gangs that the change stops, with why."""
        now, horizon_s, resolution = self.now, self.horizon_s, self.resolution
        simulation = Simulation(
            snapshot,
            now,
            self.run_times,
            horizon_s=max(wanted_s, 1.0),
            submissions=Submissions(self.requests),
            engine=self.engine,
            resolution=resolution,
        )
        if self.quick:
            shown = (*simulation.window().shown(), *simulation.on_hold)
            plan = simulation.engine.decide_without_blockers(replace(snapshot, gangs=shown), now)
            simulation.first_plans[resolution.window] = plan
        else:
            plan = simulation.engine.decide_without_blockers(snapshot, now)
        waiting = {each.id: each for each in plan.waiting}
        waiting = simulation.for_alike({gang: each for gang, each in waiting.items() if each.reason.never}) | waiting
        simulation.stay = frozenset(gang for gang, each in waiting.items() if no_time(each.reason) is not None)
        simulation.paced_until = now + horizon_s  # what the budget leaves out
        drawn = self.draw.samples(simulation, budget_s)
        until_s = min(each.until for each in drawn) - now
        devices = _whole_devices(snapshot)
        free, partly = _free(snapshot, plan)
        evicted = dict(stopped)
        for sample in drawn[:1]:
            for _, gang, beneficiary in sample.evicted:
                evicted.setdefault(
                    gang,
                    f"for {beneficiary}" if beneficiary else "as a hold, its queue's rules, or the node that goes say",
                )
        note = "" if until_s >= horizon_s else f"simulated {duration(until_s)} ahead instead of {duration(horizon_s)}"
        if note:
            note += ", and what starts later from the work ahead of it in its queue"
        if resolution is not RESOLUTIONS[0]:
            note = "; ".join(filter(None, (note, f"in steps of {resolution.part:.0%}")))
        return Future(
            starts=_starts(snapshot, plan, waiting, drawn, now, horizon_s),
            evicted=evicted,
            queues=plan.queues,
            devices=devices,
            used_now=devices - free,
            utilisation=_mean_use(drawn[0], now, until_s) / devices if devices else 0.0,
            fragmented=partly / free if free else 0.0,
            until_s=until_s,
            samples=len(drawn),
            note=note,
        )


def _starts(
    snapshot: Snapshot,
    plan: Plan,
    waiting: Mapping[str, Waiting],
    drawn: Sequence[Sample],
    now: float,
    horizon_s: float,
) -> dict[str, GangStart]:
    queues = {each.id: each.queue for each in plan.admissions}
    found = {}
    for gang in snapshot.gangs:
        stays = waiting.get(gang.id)
        queue = queues.get(gang.id) or (stays.queue if stays is not None else None) or gang.queue or ""
        found[gang.id] = _without_time(queue, stays, whole=gang.whole) or _start(
            queue, [each.starts.get(gang.id, inf) - now for each in drawn], stays, now, horizon_s
        )
    return found


def _without_time(queue: str, waiting: Waiting | None, *, whole: bool) -> GangStart | None:
    said = None if waiting is None else no_time(waiting.reason)
    if waiting is None or (said is None and whole):
        return None
    never = said is None or said.never
    message = waiting.reason.message
    return GangStart(
        queue=queue, p50_s=None, p90_s=None, never=message if never else "", on_hold="" if never else message
    )


def _start(queue: str, starts: Sequence[float], waiting: Waiting | None, now: float, horizon_s: float) -> GangStart:
    """As a forecast has it, within what is known of the gang. A start beyond the horizon is none."""
    waits = sorted(wait if wait <= horizon_s else inf for wait in starts)
    p90 = quantile(waits, 0.9) if len(waits) > 1 else None
    p50 = quantile(waits, 0.5) if waits[0] < inf else None
    p50_at, p90_at = (None if wait is None else now + wait for wait in (p50, p90))
    said = GangForecast(p50_at, p90_at, "")
    said = said if waiting is None else said.within(waiting)
    p50, p90 = (None if at is None else at - now for at in (said.p50, said.p90))
    return GangStart(queue=queue, p50_s=p50, p90_s=p90)


def _whole_devices(snapshot: Snapshot) -> int:
    """Without partitions of others: what can be in use at once at most."""
    return sum(
        not _is_partition(device) for pool in snapshot.inventory.pools_unordered() for device in pool.devices.values()
    )


def _is_partition(device: Device) -> bool:
    kind = device.attribute(f"{device.pool.driver}/type")
    return kind is not None and kind.string == "mig"


def _free(snapshot: Snapshot, plan: Plan) -> tuple[int, int]:
    """Whole devices that are free once the plan is carried out, and those of them on nodes that are partly in use."""
    taken = {device for each in plan.admissions for claim in each.claims for device in claim.devices}
    free = partly = 0
    for pool in snapshot.inventory.pools_unordered():
        for devices in pool.local.values():
            whole = [device for device in devices if not _is_partition(device)]
            used = {_whole_of(each) for each in devices if (each.use and each.use.claims) or each.ref in taken}
            left = sum(_whole_of(device) not in used for device in whole)
            free += left
            partly += left if left < len(whole) else 0
    return free, partly


def _whole_of(device: Device) -> str:
    """What a device and the partitions of it have in common: their counter set; else its own name."""
    consumption = device.counter_consumption
    return device.pool.layout.counter_set_of(consumption) if consumption else device.name


def _mean_use(sample: Sample, now: float, until_s: float) -> float:
    total, last_at, last = 0.0, now, 0
    for when, used in sample.used:
        at = min(when, now + until_s)
        total += last * (at - last_at)
        last_at, last = at, used
    total += last * max(0.0, now + until_s - last_at)
    return total / until_s if until_s > 0 else float(last)
