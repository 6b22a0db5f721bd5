"""When which status is written: reports are noted by the loop, and workers write the newest a moment later.

A slow or failing write never delays a decision. A gang of one whose claims the webhook named (`Gang.plain`) has no Gang object
unless it has waited for `WAITED_S` or has something to say: its pod shows the rest. Limits: a gang whose phase stays the same is written at most every
`QUIET_S`; where its reason stays the same too, all gangs together are written `MESSAGES_PER_S` times a second. So a gang
that alternates between reasons floods neither the apiserver nor its own events. Gangs of one namespace are written `NAMESPACE_PER_S`
times a second, so that thousands of one tenant's delay neither other tenants' nor decisions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.controller.book.book import Book, GangState, Report
from fairlead.controller.book.shown import SchedulingState, shown_soon
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.events import Failures
from fairlead.controller.report.gang_phase import PhaseSummary, Progress, summarize
from fairlead.controller.report.queue_status import QueueShown
from fairlead.controller.report.status_writer import PROBLEM_REASONS, StatusWriter
from fairlead.controller.spending import BudgetNow
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.scheduled import QueueNow
from fairlead.engine.types.plan import FlavorTotal, Plan, QueueUse
from fairlead.engine.types.settings import Problem
from fairlead.kube import errors
from fairlead.kube.limits import Clock
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

QUIET_S = 5.0
NAMESPACE_PER_S = 50.0  # on the average; NAMESPACE_BURST at once
NAMESPACE_BURST = 100
MESSAGES_PER_S = 50.0  # of all gangs: while thousands wait, each decision changes the figures in every message
SETTINGS_INTERVAL_S = 1.0  # between two writes of one Queue's or Flavor's status
DELAY_S = 0.2  # a gang passes quickly through its phases: write the last of them
FIRST_DELAY_S = 1.0  # before the Gang object is created
WAITED_S = 3.0  # for devices, until a gang of one gets a Gang object
ADMITTING_S = 5.0  # an admission that takes no longer is reported by its end alone
WORKERS = 8
WRITTEN_AT_MAX = 50_000

Key = tuple[str, str, str]  # "gang", "queue" or "flavor"; namespace; name


def speaks(summary: PhaseSummary, state: SchedulingState) -> bool:
    """Whether there is something to say of a gang of one beyond what its pod shows: it waits, is evicted, or is in trouble."""
    if state.eviction is not None or state.idle is not None or state.untried or state.last_failure:
        return True
    return summary.phase in {"Waiting", "Gathering", "Evicted", "Failed"} and summary.reason != Progress.QUEUED.value


class Reporter:
    def __init__(
        self,
        writer: StatusWriter,
        caches: Caches,
        book: Book,
        queue: WorkQueue[Key],
        failures: Failures,
        *,
        clock: Clock,
    ) -> None:
        self.phases: Counter[str] = Counter()  # gangs by phase
        self._writer = writer
        self._caches = caches
        self._book = book
        self._gangs = book.all(GangState.report)
        self._queue = queue
        self._failures = failures
        self._clock = clock
        self._queues: dict[str, QueueShown] = {}
        self._flavors: dict[str, tuple[FlavorTotal | None, tuple[Problem, ...], tuple[float, ...]]] = {}
        self._written_at: dict[Key, float] = {}
        self._paces: dict[str, float] = {}  # by namespace: when its next gang may be written, less what may be at once
        self._slots: dict[Key, float] = {}  # when a gang may be written that had to wait for others of its namespace

    # -- noting ----------------------------------------------------------------------------------------------------

    def gang(self, gang: Gang, state: SchedulingState) -> None:
        """To be written soon, or later when only the reason or the message changed."""
        summary = summarize(gang, state)
        self._note_phase(gang.id, summary.phase)
        before = self._gangs.get(gang.id)
        report = Report(gang, state, (summary.phase, *shown_soon(gang, state)), summary.reason)
        if summary.reason == Progress.ADMITTING.value:
            since = None if before is None else before.admitting_since
            report.admitting_since = self._clock() if since is None else since
        report.written = None if before is None else before.written
        self._book[gang.id].report = report
        key: Key = ("gang", *gang.id)
        if self._caches.gang_object(gang.id) is None:
            if not gang.plain or speaks(summary, state):
                waits = gang.plain and summary.reason not in PROBLEM_REASONS
                self._queue.add_after(key, WAITED_S if waits else FIRST_DELAY_S)
            return
        if before is None or before.soon != report.soon:
            self._queue.add_after(key, DELAY_S)
            return
        quiet_s = QUIET_S if before.reason != report.reason else max(QUIET_S, len(self._gangs) / MESSAGES_PER_S)
        self._queue.add_after(key, max(DELAY_S, self._wait_s(key, quiet_s)))

    def gone(self, gang: GangId) -> None:
        """The gang has no members left: its Gang object is to be deleted."""
        self._book[gang].report = None
        self._note_phase(gang, None)
        self._queue.add(("gang", *gang))

    def _note_phase(self, gang: GangId, phase: str | None) -> None:
        state = self._book[gang]
        if phase == state.phase:
            return
        if state.phase is not None:
            self.phases[state.phase] -= 1
        if phase is not None:
            self.phases[phase] += 1
        state.phase = phase

    def settings(
        self,
        plan: Plan,
        problems: Iterable[Problem],
        scheduled: Mapping[str, QueueNow],
        budgets: Mapping[str, BudgetNow],
        scale_ups: Mapping[str, tuple[float, ...]],
    ) -> None:
        """What the plan states of Queues and Flavors, their problems; by queue what of its schedule is in force, and its budget.

        `scale_ups`: by flavor, how many seconds the latest took.
        """
        by_object: dict[tuple[str, str], tuple[Problem, ...]] = {}
        for problem in problems:
            key = (problem.kind, problem.name)
            by_object[key] = (*by_object.get(key, ()), problem)
        uses = {use.name: use for use in plan.queues}
        totals = {total.flavor: total for total in plan.flavors}
        held = self._caches.rules.settings().held_queues()
        stored = self._caches.queues.all()
        parents = {(raw.get("spec") or {}).get("parent") for raw in stored}
        for raw in stored:
            name = raw["metadata"]["name"]
            use = uses.get(name) or QueueUse(name=name, flavors=(), waiting=0, admitted=0)
            queue = QueueShown(
                use=use,
                problems=by_object.get(("Queue", name), ()),
                scheduled=scheduled.get(name),
                budget=budgets.get(name),
                open_to_all=name not in parents and (raw.get("spec") or {}).get("namespaceSelector") is None,
                hold=str(held[name]) if name in held else "",
            )
            if self._queues.get(name) != queue:
                self._queues[name] = queue
                self._settings_changed(("queue", "", name))
        for raw in self._caches.flavors.all():
            name = raw["metadata"]["name"]
            flavor = (totals.get(name), by_object.get(("Flavor", name), ()), scale_ups.get(name, ()))
            if name not in self._flavors or self._flavors[name] != flavor:
                self._flavors[name] = flavor
                self._settings_changed(("flavor", "", name))

    def _settings_changed(self, key: Key) -> None:
        self._queue.add_after(key, self._wait_s(key, SETTINGS_INTERVAL_S))

    def _wait_s(self, key: Key, interval_s: float) -> float:
        return self._written_at.get(key, float("-inf")) + interval_s - self._clock()

    def usage_changed(self, queue: str) -> None:
        """The queue's past usage differs enough from its status to be written."""
        self._queue.add(("queue", "", queue))

    # -- writing ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Writes what was noted; never returns."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            wait_s = self._paced_s(key)
            if wait_s > 0:
                self._queue.done(key)
                self._queue.add_after(key, wait_s)
                continue
            try:
                with self._failures.contained("status", f"{key[0]} {'/'.join(filter(None, key[1:]))}"):
                    await self._write_or_retry(key)
            finally:
                self._queue.done(key)

    def _paced_s(self, key: Key) -> float:
        """How long the gang has to wait for others of its namespace; its place among them stays its own."""
        kind, namespace, _ = key
        if kind != "gang":
            return 0.0
        now = self._clock()
        slot = self._slots.get(key)
        if slot is None:
            earliest = now - NAMESPACE_BURST / NAMESPACE_PER_S
            slot = self._paces[namespace] = max(earliest, self._paces.get(namespace, earliest)) + 1 / NAMESPACE_PER_S
            if len(self._paces) > WRITTEN_AT_MAX:
                self._paces.clear()
        if slot > now:
            self._slots[key] = slot
        else:
            self._slots.pop(key, None)
        return slot - now

    async def _write_or_retry(self, key: Key) -> None:
        try:
            await self._write(key)
            self._queue.forget(key)
        except errors.ApiError as error:
            delay = self._queue.retry(key)
            log.log(
                logging.DEBUG if error.transient or isinstance(error, errors.Conflict) else logging.WARNING,
                "%s %s: status not written: %s; next try in %.1f s", key[0], "/".join(key[1:]), error, delay,
            )  # fmt: skip

    async def _write(self, key: Key) -> None:
        kind, namespace, name = key
        if kind == "queue":
            if name not in self._caches.queues:
                self._queues.pop(name, None)
            elif name in self._queues:
                await self._writer.queue(name, self._queues[name])
        elif kind == "flavor":
            if name not in self._caches.flavors:
                self._flavors.pop(name, None)
            elif name in self._flavors:
                await self._writer.flavor(name, *self._flavors[name])
        elif (report := self._gangs.get((namespace, name))) is not None:
            gang, state, since = report.gang, report.state, report.admitting_since
            if since is not None and since + ADMITTING_S > self._clock():
                self._queue.add_after(key, since + ADMITTING_S - self._clock())
                return
            unknown = self._caches.gang_object(gang.id) is None
            if unknown and gang.plain and not speaks(summarize(gang, state), state):
                return  # it did not wait after all
            if report.written == (gang, state, self._version(gang.id)):
                return  # nothing is new, here or there
            await self._writer.gang(gang, state)
            latest = self._gangs.get(gang.id)
            if latest is not None:
                latest.written = (gang, state, self._version(gang.id))
        else:
            again_s = await self._writer.gang_without_pods((namespace, name))
            if again_s is not None:
                self._queue.add_after(key, again_s)
        self._written_at[key] = self._clock()
        if len(self._written_at) > WRITTEN_AT_MAX:
            self._written_at.clear()

    def _version(self, gang_id: GangId) -> str | None:
        raw = self._caches.gang_object(gang_id)
        return None if raw is None else str(raw["metadata"].get("resourceVersion", ""))
