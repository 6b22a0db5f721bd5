"""A gang's phase and reason, with a message in words: a function of the gang and its place in the scheduling cycle.

`kubectl get gangs`, events and `fairlead explain` all show this one result. Order: pods that ended, pods that terminate,
a gang that is placed, one being admitted, one that runs short, and then why a pending gang waits.

Why pods that have a node do not start, a driver says in the claim (`fairlead.kube.prepare_refusals`), kubelet in the pod's status: a
container that waits for another reason than being created. What kubelet says in Events alone is looked for where neither says
anything (`kubelet_events`). Example: `train-3 on node-7 does not start: NodePrepareResources: gpu-0 is held by ResourceClaim …`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission.requests import blocking_problem
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, mark_of
from fairlead.controller.gangs.held import vacancies
from fairlead.controller.gangs.held.leaving import lost_text
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.engine.types.plan import Waiting
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, prepare_refusals

LISTED_MAX = 8


class Progress(StrEnum):
    """Reasons beside `reasons.Code`: how far a gang has come, rather than what blocks it."""

    QUEUED = "Queued"
    ADMITTING = "Admitting"
    STARTING = "Starting"
    REFUSED = "StartRefused"
    RUN = "MembersRun"
    SUCCEEDED = "PodsSucceeded"
    FAILED = "PodsFailed"
    REPLACING = "Replacing"
    NODE_LOST = "NodeLost"
    STOPPING = "Stopping"
    EVICTED = "Evicted"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """`text` may be a function: thousands of gangs are looked at for each one whose message is written."""

    phase: str
    reason: str
    text: str | Callable[[], str]

    @property
    def message(self) -> str:
        return self.text if isinstance(self.text, str) else self.text()


def summarize(gang: Gang, state: SchedulingState) -> PhaseSummary:
    released, gated = gang.released, gang.gated
    if not released and not gated:
        return _ended(gang)
    if not gated and all(member.terminating for member in released):
        return _stopping(released, state)
    if released and gang.placed >= gang.size:
        return _placed(gang, state)
    if state.admitting:
        text = "devices are chosen; claims are being written"
        return PhaseSummary(phase="Admitted", reason=Progress.ADMITTING.value, text=text)
    if any(member.pod.status.phase == "Running" for member in gang.running):
        return _short(gang, state)
    problem = blocking_problem(gang)
    if problem is not None:
        phase = {Code.GATHERING: "Gathering", Code.NO_MORE_PODS: "Failed"}.get(problem.code, "Waiting")
        held = f"; {state.hold}" if state.hold else ""
        return PhaseSummary(phase=phase, reason=problem.code.value, text=f"{problem.message}{held}")
    if state.waiting is not None:
        text_later = partial(_waiting_text, state.waiting, state)
        return PhaseSummary(phase="Waiting", reason=state.waiting.reason.code.value, text=text_later)
    if state.last_failure:
        return PhaseSummary(phase="Waiting", reason=Progress.ROLLED_BACK.value, text=state.last_failure)
    return PhaseSummary(phase="Waiting", reason=Progress.QUEUED.value, text="not considered yet")


def _ended(gang: Gang) -> PhaseSummary:
    over = gang.failed_job
    if over is not None:
        return PhaseSummary(phase="Failed", reason=Progress.FAILED.value, text=over.ended)
    failed = gang.at(Stage.FAILED)
    if not failed:
        return PhaseSummary(phase="Finished", reason=Progress.SUCCEEDED.value, text="all pods have ended well")
    mark = _last_mark(failed)
    if mark is not None:
        text = f"evicted, {mark.description}; {len(failed)} of its pods are still to be recreated"
        return PhaseSummary(phase="Evicted", reason=Progress.EVICTED.value, text=text)
    text = f"{len(failed)} of {len(gang.members)} pods failed"
    making = next((job for job in gang.jobs if not job.ended), None)
    if making is not None:
        text = f"{text}; Job {making.name} makes others after its back-off"
        return PhaseSummary(phase="Gathering", reason=Progress.FAILED.value, text=text)
    return PhaseSummary(phase="Failed", reason=Progress.FAILED.value, text=text)


def _last_mark(members: Sequence[Member]) -> EvictionMark | None:
    """Pods of an earlier eviction may still be there."""
    marks = (mark for member in members if (mark := mark_of(member.pod)) is not None)
    return max(marks, key=lambda mark: mark.at, default=None)


def _stopping(released: Sequence[Member], state: SchedulingState) -> PhaseSummary:
    what = "pod is" if len(released) == 1 else "pods are"
    mark = _last_mark(released)
    why = f": evicted, {mark.description}" if mark is not None else ""
    said = f"; {state.leaving}" if state.leaving else ""
    text = f"{len(released)} {what} on the way out, and devices still held{why}{said}"
    if state.lost:
        text = f"{text}; {lost_text(state.lost)}"
    reason = Progress.NODE_LOST if state.lost else Progress.STOPPING
    return PhaseSummary(phase="Running", reason=reason.value, text=text)


def _placed(gang: Gang, state: SchedulingState) -> PhaseSummary:
    all_run = ready_members(gang) + gang.lost >= gang.size
    more = ""
    if gang.gated:
        why = f": {state.waiting.reason}" if state.waiting else ""
        more = f"; {len(gang.gated)} more wait{why}"
    if state.eviction is not None:
        more = f"{more}; {state.eviction}"
    elif state.hold and not gang.gated:
        more = f"{more}; {state.hold}: what runs goes on"
    if state.untried:
        more += f"; kube-scheduler has not tried {state.untried} of its pods: see that it runs (they wait without a timeout, for another scheduler ten minutes)"
    text = f"{_members_run(gang)}{more}"
    if state.lost:
        text = f"{text}; {lost_text(state.lost)}"
        phase = "Running" if all_run else "Admitted"
        return PhaseSummary(phase=phase, reason=Progress.NODE_LOST.value, text=text)
    if all_run:
        return PhaseSummary(phase="Running", reason=Progress.RUN.value, text=text)
    refused = refusal_text(gang, state.refused)
    if refused:
        return PhaseSummary(
            phase="Admitted", reason=Progress.REFUSED.value, text=f"devices are given; {text}; {refused}"
        )
    return PhaseSummary(phase="Admitted", reason=Progress.STARTING.value, text=f"devices are given; {text}")


def _short(gang: Gang, state: SchedulingState) -> PhaseSummary:
    """Members that are leaving may go for good, where their workload was made smaller: only of the others it is said what comes."""
    lost = {member.uid for node in state.lost for member in node.members if not member.runs}
    leaving = sum(member.terminating and member.uid not in lost for member in gang.at(Stage.RELEASED))
    lacking = max(0, gang.together - len(gang.running) - len(lost))
    leaving = min(leaving, lacking)
    said = [_members_run(gang)]
    if leaving:
        said.append(f"{leaving} {'is' if leaving == 1 else 'are'} leaving")
    if coming := lacking - leaving:
        are = "is" if coming == 1 else "are"
        replaced = vacancies.may_be_replaced(gang) or gang.gated
        what = "being replaced" if replaced else "missing, and nothing is known to make others: the rest runs on"
        said.append(f"{coming} {are} {what}")
    if gang.gated and state.waiting:
        said[-1] += f": {state.waiting.reason}"
    if state.eviction is not None:
        said.append(str(state.eviction))
    if state.lost:
        text = "; ".join((*said, lost_text(state.lost)))
        return PhaseSummary(phase="Running", reason=Progress.NODE_LOST.value, text=text)
    refused = refusal_text(gang, state.refused)
    if refused:
        return PhaseSummary(phase="Running", reason=Progress.REFUSED.value, text="; ".join((*said, refused)))
    return PhaseSummary(phase="Running", reason=Progress.REPLACING.value, text="; ".join(said))


def ready_members(gang: Gang) -> int:
    """Members of its size that run or have succeeded."""
    if not gang.started:
        return min(gang.size, sum(is_ready(member) for member in gang.members))
    return gang.done - gang.lost + sum(is_ready(member) for member in gang.running)


def _members_run(gang: Gang) -> str:
    lost = f", {gang.lost} {'has' if gang.lost == 1 else 'have'} failed for good" if gang.lost else ""
    return f"{ready_members(gang)} of {gang.size} members run{lost}"


def _waiting_text(waiting: Waiting, state: SchedulingState) -> str:
    message = str(waiting.reason)
    if state.victims and waiting.reason.code is not Code.MAKING_ROOM:
        message = f"{message} Being evicted for it: {listed(state.victims)}."
    if state.nodes is not None and state.nodes.demand.state == "Asked":
        text = state.nodes.text
        message = f"{message} {text[:1].upper()}{text[1:]}."
    return f"{message} Before that: {state.last_failure}." if state.last_failure else message


def is_ready(member: Member) -> bool:
    runs = member.stage is Stage.RELEASED and member.pod.status.phase == "Running" and not member.terminating
    return runs or member.stage is Stage.SUCCEEDED


def listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


STARTS = frozenset({"", "ContainerCreating", "PodInitializing"})
SAID_MAX = 300


def refusal_text(gang: Gang, events: tuple[str, str] | None) -> str:
    """For users, of the first such pod; empty where nothing is refused. `events`: a pod's UID, and what kubelet says of it in Events."""
    uid, said_of_it = events or ("", "")
    found = [
        (member, said)
        for member in gang.released
        if _starts(member) and (said := _refusal(member) or (said_of_it if member.uid == uid else ""))
    ]
    if not found:
        return ""
    member, said = found[0]
    more = f"; and {len(found) - 1} more of its pods do not start" if len(found) > 1 else ""
    return f"{member.pod.metadata.name} on {member.pod.spec.node_name} does not start: {said[:SAID_MAX]}{more}"


def unexplained(gang: Gang) -> list[core.Pod]:
    """Pods with a node of which no container was begun, and neither driver nor status says why."""
    return [member.pod for member in gang.released if _starts(member) and not _begun(member) and not _refusal(member)]


def _starts(member: Member) -> bool:
    return member.bound and not member.terminating and member.pod.status.phase in {"", "Pending"}


def _begun(member: Member) -> bool:
    return any(status.state.waiting is None for status in member.pod.status.container_statuses)


def _refusal(member: Member) -> str:
    for each in member.claims:
        if each.claim is not None and (said := prepare_refusals.refusal(each.claim)):
            return said
    for status in member.pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in STARTS:
            return f"container {status.name}: {waiting.reason}{f': {waiting.message}' if waiting.message else ''}"
    return ""
