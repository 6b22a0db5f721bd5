"""The controller's loop: look, put right, decide, carry out, report; then wait until something changed.

Exists to hold the parts together, and nothing else. One loop decides; admissions are carried out beside it, each gang by
one task at a time, with its devices and nodes assumed taken from the decision on.
Never polls: it wakes for a change that may change a decision, for a gang's deadline, and to sweep (rarely).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from fairlead.api import legacy
from fairlead.controller import claims, plan, recovery, requests, settings
from fairlead.controller.commit import Committer
from fairlead.controller.gangs import Gang, GangId, Member
from fairlead.controller.metrics import Metrics
from fairlead.controller.model import Admission, GangRequest, Plan, RunningGang, Snapshot, Waiting
from fairlead.controller.reporter import Reporter
from fairlead.controller.state import State
from fairlead.controller.status import Standing
from fairlead.controller.writes import GivenUpError, LeaseLostError, Writer
from fairlead.kube import errors, logs, resource, resources
from fairlead.kube.client import Client
from fairlead.kube.limits import Backoff, Clock, Sleep
from fairlead.kube.objects import ObjectMeta

log = logging.getLogger(__name__)

SWEEP_S = 30.0
AVOID_S = 600.0  # how long a node is shunned by a gang that failed there
GATHER_S = 0.02  # changes come in bursts: wait this long for the rest before deciding

Decide = Callable[[Snapshot, float], Plan]


@dataclass(slots=True)
class Setback:
    """What went wrong with a gang, how often in a row, and until when it is left alone."""

    why: str = ""
    failures: int = 0
    until: float = 0.0
    avoid: dict[str, float] = field(default_factory=dict)  # node: until when
    created: float | None = None  # of the gang that was rolled back: its successor keeps its age


class Controller:
    def __init__(
        self,
        client: Client,
        state: State,
        writer: Writer,
        reporter: Reporter,
        metrics: Metrics,
        *,
        gang_timeout_s: float,
        clock: Clock,
        wall: Clock,
        sleep: Sleep,
        random: Random,
        decide: Decide = plan.decide,
    ) -> None:
        self.cycles = 0
        self.decisions = 0
        self._client = client
        self._state = state
        self._writer = writer
        self._committer = Committer(writer, state, wall=wall)
        self._reporter = reporter
        self._metrics = metrics
        self._gang_timeout_s = gang_timeout_s
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._random = random
        self._decide = decide
        self._backoff = Backoff(base_s=1.0, max_s=120.0)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._busy: dict[GangId, Admission | None] = {}
        self._assumed: dict[GangId, Admission] = {}
        self._making: set[str] = set()
        self._setbacks: dict[GangId, Setback] = {}
        self._deadlines: dict[GangId, float] = {}
        self._requests: dict[GangId, GangRequest] = {}
        self._running: dict[GangId, RunningGang] = {}
        self._queues: dict[GangId, str] = {}  # into which queue each was admitted
        self._waiting: dict[GangId, Waiting] = {}
        self._problems: set[str] = set()  # about Queues and Flavors, as last logged
        self._suspects: set[str] = set()  # claims that looked abandoned in the last sweep
        self._sweep_at = wall() + SWEEP_S

    async def run(self) -> None:
        """Until cancelled. Call `settle` afterwards."""
        while True:
            try:
                self.cycle()
            except Exception:  # one object that breaks us must not stop the service for all others
                log.exception("a cycle failed; the next one looks at everything again")
                self._metrics.errors.labels("cycle").inc()
                self._state.touch_all()
                await self._sleep(1.0)
            await self._rest()

    async def settle(self, patience_s: float) -> bool:
        """Waits for the writes that are under way; false when some still are after `patience_s` (then cancelled)."""
        end = self._clock() + patience_s
        while self._tasks and self._clock() < end:
            await asyncio.wait(list(self._tasks), timeout=max(0.0, end - self._clock()))
        late = list(self._tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    # -- one cycle -------------------------------------------------------------------------------------------------

    def cycle(self) -> None:
        """Looks at what changed; decides if that may change a decision. Starts tasks, waits for none."""
        self.cycles += 1
        self._state.wake.clear()
        now = self._wall()
        self._expire(now)
        touched = self._state.refresh()
        for gang_id in sorted(touched):
            self._care(gang_id, now)
        if now >= self._sweep_at:
            self._sweep(now)
        told = set(touched)
        if self._state.decide:
            told |= self._decide_now(now)
        for gang_id in sorted(told):
            self._report(gang_id)
        self._count()

    async def _rest(self) -> None:
        """Until something changed or is due, and a moment longer."""
        due = [self._sweep_at, *self._deadlines.values()]
        due += [s.until for gang, s in self._setbacks.items() if s.until and gang in self._state.gangs]
        wait_s = max(0.0, min(due) - self._wall())
        waits = (asyncio.ensure_future(self._state.wake.wait()), asyncio.ensure_future(self._sleep(wait_s)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await self._sleep(GATHER_S)

    def _expire(self, now: float) -> None:
        for gang_id, deadline in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[gang_id]
                self._state.touch(gang_id)
        for gang_id, setback in list(self._setbacks.items()):
            setback.avoid = {node: until for node, until in setback.avoid.items() if until > now}
            if setback.until and setback.until <= now:
                setback.until = 0.0
                self._state.decide = True
                self._state.touch(gang_id)
            if not setback.until and not setback.avoid and gang_id not in self._state.gangs:
                del self._setbacks[gang_id]

    # -- putting right ---------------------------------------------------------------------------------------------

    def _care(self, gang_id: GangId, now: float) -> None:
        """Whatever this gang needs apart from a decision."""
        gang = self._state.gangs.get(gang_id)
        self._requests.pop(gang_id, None)
        self._running.pop(gang_id, None)
        self._deadlines.pop(gang_id, None)
        if gang is not None:
            self._tidy(gang)
        if gang is None or not gang.members:
            self._waiting.pop(gang_id, None)
            self._queues.pop(gang_id, None)
            self._reporter.gone(gang_id)
            return
        standing = self._standing(gang_id, now)
        labels = self._state.namespace_labels(gang.namespace)
        if (held := requests.running(gang, standing, labels)) is not None:
            self._running[gang_id] = held
        if gang_id in self._busy:
            return
        step = recovery.next_step(gang, now=now, timeout_s=self._gang_timeout_s, node_exists=self._state.node_exists)
        if step is not None and self._resting(gang_id, now):
            self._deadlines[gang_id] = self._setbacks[gang_id].until
        elif step is not None:
            self._begin(gang_id, self._step(gang, step), None)
        else:
            self._assume_no_more(gang_id)
            if gang.released and gang.placed >= gang.size and all(member.bound for member in gang.released):
                self._setbacks.pop(gang_id, None)
            if (deadline := recovery.next_deadline(gang, self._gang_timeout_s)) is not None:
                self._deadlines[gang_id] = max(deadline, now + 0.1)
            if requests.blocked(gang) is None and (asked := requests.request(gang, standing, labels)) is not None:
                self._requests[gang_id] = asked

    def _tidy(self, gang: Gang) -> None:
        for stranger in gang.strangers:
            self._once(f"pod {stranger.pod.metadata.key}", self._let_go(stranger))
        for member in gang.members:
            for template in member.legacy:
                self._once(f"template {gang.namespace}/{template}", self._make_template(gang.namespace, template))
            if gang.id not in self._busy:
                self._agree_on_claims(member)

    def _agree_on_claims(self, member: Member) -> None:
        """One claim per template entry, and the pod's status names it; others that were made for it are deleted.

        The claim controller works from a cache: it may name a claim of its own after ours was allocated, even after the
        pod was bound, where nobody but us would ever put that right.
        """
        named = claims.names_used(member.pod)
        misnamed = {
            entry.name: entry.claim.metadata.name
            for entry in member.entries
            if entry.claim is not None
            and entry.template is not None
            and entry.reserved_for(member.uid)
            and named.get(entry.name) not in {None, entry.claim.metadata.name}
        }
        if misnamed:
            self._once(f"names of {member.uid}", self._name_again(member, misnamed))
            return
        for entry in member.entries:
            if entry.claim is None or entry.template is None:
                continue
            owned = self._state.claims_of(member.uid)
            for stray in claims.strays(member.pod, entry.name, named.get(entry.name), owned):
                self._once(f"claim {stray.metadata.uid}", self._writer.drop_stray(stray))

    async def _name_again(self, member: Member, names_: dict[str, str]) -> None:
        log.info("pod %s: its status names another claim than the allocated one; named again", member.pod.metadata.key)
        with contextlib.suppress(errors.Conflict, errors.NotFound):  # it changed: its next change brings us back
            await self._writer.name_claims(member.pod, names_)

    async def _make_template(self, namespace: str, name: str) -> None:
        manifest = legacy.template_manifest(name, namespace, driver=self._state.drivers[0])
        try:
            made = await self._client.create(resources.RESOURCE_CLAIM_TEMPLATES, manifest)
        except errors.AlreadyExists:
            made = await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace)
        self._state.templates.note(made)

    async def _let_go(self, member: Member) -> None:
        """The pod asks for nothing of ours; it was gated while that was not known."""
        log.info("pod %s asks for no device of ours; its gate is removed", member.pod.metadata.key)
        await self._writer.release_pod(member.pod, None, {})

    async def _step(self, gang: Gang, step: recovery.Step) -> None:
        name = type(step).__name__
        self._metrics.recoveries.labels(name).inc()
        if isinstance(step, recovery.Complete):
            log.info("gang %s/%s: completing its admission: %d pods to release", *gang.id, len(step.members))
            outcome = await self._committer.release(step.members)
            if not outcome.done:
                self._set_back(gang.id, outcome.why)
        elif isinstance(step, recovery.Undo):
            log.warning("gang %s/%s: taking back %d pods: %s", *gang.id, len(step.members), step.why)
            await self._committer.undo(step.members)
            self._assume_no_more(gang.id)
            self._set_back(gang.id, step.why)
        else:
            log.warning("gang %s/%s: rolled back: %s", *gang.id, step.why)
            self._reporter.event(gang.id, "RolledBack", step.why, warning=True)
            for member in step.members[:16]:
                self._reporter.pod_event(member.pod, "RolledBack", step.why, warning=True)
            self._set_back(gang.id, f"rolled back: {step.why}", step.nodes)
            self._setbacks[gang.id].created = gang.created
            await self._committer.roll_back(step.members)

    def _sweep(self, now: float) -> None:
        """Allocations of ours that nobody uses; those that looked so in two sweeps are cleared."""
        self._sweep_at = now + SWEEP_S
        found = {
            claim.metadata.uid: claim
            for claim in recovery.abandoned(
                self._state.claims.all(), drivers=self._state.drivers, used=lambda claim: bool(self._state.users(claim))
            )
        }
        for uid in self._suspects & set(found):
            log.warning("ResourceClaim %s is allocated, but nobody uses it: cleared", found[uid].metadata.key)
            self._metrics.swept.inc()
            self._once(f"claim {uid}", self._writer.take_back(found[uid], [], keep_allocation=False))
        self._suspects = set(found)

    # -- deciding --------------------------------------------------------------------------------------------------

    def _decide_now(self, now: float) -> set[GangId]:
        """Decides and begins what was decided. Returns the gangs about which there is something new to say."""
        self._state.decide = False
        self.decisions += 1
        read = settings.read(self._state.queues.all(), self._state.flavors.all())
        asking = [
            asked
            for gang_id, asked in self._requests.items()
            if gang_id not in self._busy and not self._resting(gang_id, now)
        ]
        snapshot = Snapshot(
            inventory=self._state.inventory,
            nodes=self._state.nodes,
            classes=self._state.classes,
            gangs=tuple(sorted(asking, key=lambda asked: asked.id)),
            running=tuple(sorted(self._holding(), key=lambda held: held.id)),
            queues=read.queues,
            flavors=read.flavors,
        )
        began = self._clock()
        with logs.operation(log, "decide", level=logging.DEBUG, clock=self._clock, gangs=len(asking)):
            decided = self._decide(snapshot, now)
        self._metrics.decide_seconds.observe(self._clock() - began)
        problems = {*read.problems, *decided.problems}
        for problem in sorted(problems - self._problems):
            log.warning("%s", problem)
        self._problems = problems
        before = self._waiting
        self._waiting = {(waiting.namespace, waiting.name): waiting for waiting in decided.waiting}
        for admission in decided.admissions:
            self._admit(admission)
        self._reporter.queues(decided.queues)
        self._metrics.note_queues(decided.queues)
        changed = {gang_id for gang_id, waiting in self._waiting.items() if before.get(gang_id) != waiting}
        return changed | {(admission.namespace, admission.name) for admission in decided.admissions}

    def _holding(self) -> list[RunningGang]:
        """What gangs hold, those included that are being admitted."""
        held = dict(self._running)
        for gang_id, admission in self._busy.items():
            gang = self._state.gangs.get(gang_id)
            if admission is None or gang is None:
                continue
            known = held.get(gang_id)
            keys = {claim.key for claim in admission.claims} | set(known.claims if known else ())
            held[gang_id] = RunningGang(
                namespace=gang.namespace,
                name=gang.name,
                uid=admission.uid,
                queue=admission.queue or gang.queue,
                claims=tuple(sorted(keys)),
                namespace_labels=self._state.namespace_labels(gang.namespace),
                priority=gang.priority,
                created=gang.created,
                started=self._wall(),
            )
        return list(held.values())

    def _admit(self, admission: Admission) -> None:
        gang_id = (admission.namespace, admission.name)
        gang = self._state.gangs[gang_id]
        pods = {member.uid: member.pod for member in gang.members}
        for planned in admission.claims:
            if not planned.already_allocated:
                self._state.assume_claim(
                    planned.key, _assumed(planned.key, planned.namespace, planned.name, planned.allocation.to_json())
                )
        for assigned in admission.assignments:
            self._state.assume_pod(pods[assigned.pod.uid], assigned.node)
        self._assumed[gang_id] = admission
        self._queues[gang_id] = admission.queue
        self._requests.pop(gang_id, None)
        self._begin(gang_id, self._carry_out(gang, admission), admission)

    async def _carry_out(self, gang: Gang, admission: Admission) -> None:
        began = self._clock()
        with logs.operation(log, "admit", clock=self._clock, gang=admission.id, pods=len(admission.assignments)):
            outcome = await self._committer.admit(gang, admission)
        self._assume_no_more(gang.id)  # not reached on an error: then what was written is not certain
        self._metrics.admissions.labels("admitted" if outcome.done else "failed").inc()
        if outcome.done:
            self._metrics.commit_seconds.observe(self._clock() - began)
            self._tell_admitted(gang, admission)
        else:
            self._set_back(gang.id, outcome.why)

    def _assume_no_more(self, gang_id: GangId) -> None:
        """The watched copies show what became of the gang's admission."""
        admission = self._assumed.pop(gang_id, None)
        if admission is None:
            return
        for planned in admission.claims:
            self._state.release_claim(planned.key)
        for assigned in admission.assignments:
            self._state.release_pod(assigned.pod.uid)

    def _tell_admitted(self, gang: Gang, admission: Admission) -> None:
        pods = {member.uid: member for member in gang.members}
        given = {planned.key: planned for planned in admission.claims}
        for assigned in admission.assignments[:64]:
            member = pods[assigned.pod.uid]
            devices = [
                result.device.device
                for entry in member.entries
                if entry.key in given
                for result in given[entry.key].allocation.results
            ]
            what = f" with {', '.join(devices[:16])}" if devices else ""
            self._reporter.pod_event(member.pod, "Admitted", f"released to node {assigned.node}{what}")

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _begin(self, gang_id: GangId, work: Coroutine[Any, Any, None], admission: Admission | None) -> None:
        self._busy[gang_id] = admission

        def over() -> None:
            self._busy.pop(gang_id, None)
            self._state.decide = True
            self._state.touch(gang_id)

        self._spawn(f"gang {'/'.join(gang_id)}", work, over, gang_id)

    def _once(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts it unless the same is under way."""
        if what in self._making:
            work.close()
            return
        self._making.add(what)
        self._spawn(what, work, lambda: self._making.discard(what), None)

    def _spawn(
        self, what: str, work: Coroutine[Any, Any, None], over: Callable[[], None], gang_id: GangId | None
    ) -> None:
        async def guarded() -> None:
            try:
                await work
            except LeaseLostError:
                log.info("%s: left as it is: the lease is lost", what)
            except (errors.ApiError, GivenUpError) as error:
                log.warning("%s: %s", what, error)
                if gang_id is not None:
                    self._set_back(gang_id, str(error))
            except Exception as error:
                log.exception("%s: failed", what)
                self._metrics.errors.labels("task").inc()
                if gang_id is not None:
                    self._set_back(gang_id, f"{type(error).__name__}: {error}")

        task = asyncio.create_task(guarded(), name=what)
        self._tasks[task] = what

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.pop(finished, None)
            over()

        task.add_done_callback(done)

    def _set_back(self, gang_id: GangId, why: str, nodes: tuple[str, ...] = ()) -> None:
        setback = self._setbacks.setdefault(gang_id, Setback())
        setback.why = why
        setback.until = self._wall() + self._backoff.delay(setback.failures, self._random)
        setback.failures += 1
        for node in nodes:
            setback.avoid[node] = self._wall() + AVOID_S

    def _resting(self, gang_id: GangId, now: float) -> bool:
        setback = self._setbacks.get(gang_id)
        return setback is not None and setback.until > now

    def _standing(self, gang_id: GangId, now: float) -> requests.Standing:
        raw: Mapping[str, Any] = self._state.gang_objects.get("/".join(gang_id)) or {}
        setback = self._setbacks.get(gang_id)
        return requests.Standing(
            uid=raw.get("metadata", {}).get("uid", ""),
            created=setback.created if setback else None,
            avoid=tuple(sorted(setback.avoid)) if setback else (),
        )

    def _report(self, gang_id: GangId) -> None:
        gang = self._state.gangs.get(gang_id)
        if gang is None or not gang.members:
            return
        setback = self._setbacks.get(gang_id)
        self._reporter.gang(
            gang,
            Standing(
                waiting=self._waiting.get(gang_id),
                admitting=self._busy.get(gang_id) is not None,
                queue=self._queues.get(gang_id),
                setback=setback.why if setback else "",
            ),
        )

    def _count(self) -> None:
        counts: dict[str, int] = {}
        for phase in self._reporter.phases.values():
            counts[phase] = counts.get(phase, 0) + 1
        for phase in ("Gathering", "Waiting", "Admitted", "Running", "Finished", "Failed"):
            self._metrics.gangs.labels(phase).set(counts.get(phase, 0))


def _assumed(key: str, namespace: str, name: str, allocation: Mapping[str, Any]) -> resource.ResourceClaim:
    """A claim as the inventory should see it while it is being written."""
    return resource.ResourceClaim(
        metadata=ObjectMeta(uid=key, namespace=namespace, name=name),
        status=resource.ResourceClaimStatus(allocation=msgspec.convert(allocation, resource.AllocationResult)),
    )
