"""A gang's last eviction, in `status.lastEviction` of its Gang: since when the gang is queued, so that its recreated pods keep their age.

A gang that is rolled back since kube-scheduler refused its pods is evicted, too: then the nodes are told, for the next leader.
Users cannot write a Gang's status. All the same no number that is read gives a gang more than an eviction could have given it: a time
in the future, an age beyond `AGE_MAX_S`, a hold beyond `HELD_S` or more than `SPOTS_MAX` spots count as absent, or as the bound.

How long it is remembered follows from what makes the pods again. The Job controller waits longest: its back-off is at most
600 s and begins when the last pod has ended, at most its grace period after the eviction. On top comes a margin for a
controller-manager or an apiserver that is away meanwhile. Without pods, a gang is forgotten sooner where nothing makes them
again: its Job is complete or was deleted. Text that cannot be read counts as absent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.api import names
from fairlead.api.gang import REFUSED_MAX, SPOT_DEVICES_MAX, SPOTS_MAX
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, mark_of
from fairlead.controller.gangs.evictions.moved import HELD_S, Spot, read_spot
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.jobs import JobPods
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.pods import PodNeeds
from fairlead.kube import core, timestamps

JOB_BACKOFF_MAX_S = 600.0  # MaxJobPodFailureBackOff of pkg/controller/job, 1.36
MARGIN_S = 300.0
FIELD = "lastEviction"  # of a Gang's status
WHAT_MAX = 1024
WHY_MAX = 4096
NAME_MAX = 128  # of an owner's UID; pods may name any text
KIND_MAX = 253
AMOUNT_MAX = 2**62  # of a resource that a spot takes
RESOURCES_MAX = 64
SKEW_S = 300.0  # by how much the clock of an earlier leader may be ahead
AGE_MAX_S = 90 * 86400.0  # that a gang may have been queued before its eviction
TIMES_MAX = 32  # that a number of refusals in a row which is read may say
GRACE_S = 30.0  # of a pod that does not say
GRACE_MAX_S = 86400.0  # of one that says any number
JOB_GONE_S = 30.0  # a JobSet that restarts deletes its Jobs and creates others


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A node on which kube-scheduler refused the gang's pods. `until` is unix seconds."""

    node: str
    until: float
    times: int  # in a row
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEviction:
    """Times are unix seconds. `until`: how long the Gang object outlives its pods."""

    at: float
    queued_since: float
    mark: str  # "reclaimed for gang ml/x"
    why: str
    until: float
    queue: str = ""  # in which it ran: it is charged for the place
    owner: str = ""  # UID of the owner of a gang of one: its next pod has another name
    maker: str = ""  # kind of what makes its pods: "Job", "JobSet", "ReplicaSet"; "" for bare pods
    place: tuple[Spot, ...] = ()  # that is held for its new pods, where it moved
    held_until: float = 0.0
    refused: tuple[Refusal, ...] = ()  # where it was rolled back for that: it had not started

    @property
    def waits_since(self) -> float:
        return self.queued_since if self.refused else self.at

    @property
    def description(self) -> str:
        return f"evicted at {timestamps.seconds(self.at)}: {self.mark}: {self.why}"

    def status(self) -> dict[str, Any]:
        """As a merge patch of the Gang's status, which takes away what an earlier record had.

        Whatever pods say, it fits the schema: a record that is refused would keep the gang from being evicted.
        """
        refused = [
            {"node": each.node, "until": timestamps.seconds(each.until), "times": each.times, "why": each.why[:WHY_MAX]}
            for each in self.refused
        ]
        record: dict[str, Any] = {
            "at": timestamps.seconds(self.at),
            "since": timestamps.seconds(self.queued_since),
            "what": self.mark[:WHAT_MAX],
            "why": self.why[:WHY_MAX],
            "until": timestamps.seconds(self.until),
            "queue": self.queue,
            "owner": self.owner,
            "maker": self.maker[:KIND_MAX],
            "place": [spot.to_json() for spot in self.place] or None,
            "held": timestamps.seconds(self.held_until) if self.place else None,
            "refused": refused or None,
        }
        return {FIELD: record}


def eviction_of(
    gang: Gang, members: Iterable[Member], mark: EvictionMark, *, queue: str, at: float, queued_since: float
) -> PastEviction:
    """The eviction of these members, now."""
    evicted = list(members)
    made = replace(_eviction(gang, evicted, str(mark), mark.why, at=at, queued_since=queued_since), queue=queue)
    place = place_of(evicted)
    return replace(made, place=place, held_until=at + _grace_s(evicted) + HELD_S) if place else made


def roll_back_of(
    gang: Gang, members: Iterable[Member], why: str, refused: Iterable[Refusal], *, at: float, queued_since: float
) -> PastEviction:
    """These members did not bind, since kube-scheduler refused them; they are evicted now."""
    made = _eviction(gang, list(members), "rolled back", why, at=at, queued_since=queued_since)
    return replace(made, refused=tuple(refused)[:REFUSED_MAX])


def _eviction(
    gang: Gang, evicted: Sequence[Member], what: str, why: str, *, at: float, queued_since: float
) -> PastEviction:
    return PastEviction(
        at=at,
        queued_since=queued_since,
        mark=what,
        why=why,
        until=at + _grace_s(evicted) + JOB_BACKOFF_MAX_S + MARGIN_S,
        owner=evicted[0].owner if gang.solo and len(evicted[0].owner) <= NAME_MAX else "",
        maker=_maker(evicted[0].pod),
    )


def _maker(pod: core.Pod) -> str:
    """The owner that creates the pods again; for a JobSet's pods not the Job, which it deletes and creates again when it restarts."""
    controller = pod.metadata.controller
    kind = controller.kind if controller is not None else ""
    return "JobSet" if kind == "Job" and names.JOBSET_JOB in pod.metadata.labels else kind


def _grace_s(evicted: Iterable[Member]) -> float:
    grace = [member.pod.spec.termination_grace_period_seconds for member in evicted]
    return min(max((GRACE_S if each is None else float(each) for each in grace), default=GRACE_S), GRACE_MAX_S)


def place_of(marked: Iterable[Member]) -> tuple[Spot, ...]:
    """What is held for these members, as their marks say, with the room that their pods take; () where nothing is."""
    spots: list[Spot] = []
    for member in marked:
        mark = mark_of(member.pod)
        if mark is None or mark.spot is None:
            return ()
        spots.append(replace(mark.spot, requests=PodNeeds.of(member.pod).requests))
    return tuple(spots) if _credible(spots) else ()


def _credible(spots: Sequence[Spot]) -> bool:
    """Whether it may be the place of a gang: not too large, and no device twice."""
    devices = [device for spot in spots for device in spot.devices]
    return (
        len(spots) <= SPOTS_MAX
        and len(set(devices)) == len(devices)
        and all(
            len(spot.devices) <= SPOT_DEVICES_MAX
            and len(spot.requests) <= RESOURCES_MAX
            and all(0 <= amount <= AMOUNT_MAX for _, amount in spot.requests)
            for spot in spots
        )
    )


def owner_of(raw: Mapping[str, Any]) -> str:
    """UID of the owner of the evicted gang of one, of a Gang object as the API shows it; "" where it has none."""
    owner = _record(raw).get("owner")
    return owner if isinstance(owner, str) else ""


def past_eviction(raw: Mapping[str, Any], now: float) -> PastEviction | None:
    """The last eviction of a Gang object as the API shows it. `now`: unix seconds."""
    read = _record(raw)
    if not read:
        return None
    try:
        at = timestamps.parse(read["at"])
        if at > now + SKEW_S:
            return None
        until, held = read.get("until"), read.get("held")
        longest = at + GRACE_MAX_S + JOB_BACKOFF_MAX_S + MARGIN_S
        spots = [read_spot(each) for each in (read.get("place") or ())[: SPOTS_MAX + 1]]
        return PastEviction(
            at=at,
            queued_since=min(max(timestamps.parse(read["since"]), at - AGE_MAX_S), at),
            mark=str(read["what"])[:WHAT_MAX],
            why=str(read["why"])[:WHY_MAX],
            until=min(timestamps.parse(until), longest) if until else at + JOB_BACKOFF_MAX_S + MARGIN_S,
            queue=str(read.get("queue", "")),
            owner=owner_of(raw),
            maker=str(read.get("maker", "")),
            place=tuple(spots) if held and _credible(spots) else (),
            held_until=min(timestamps.parse(held), at + GRACE_MAX_S + HELD_S) if held else 0.0,
            refused=tuple(_read_refusal(each) for each in (read.get("refused") or ())[:REFUSED_MAX]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _record(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    status = raw.get("status")
    found = status.get(FIELD) if isinstance(status, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _read_refusal(read: Mapping[str, Any]) -> Refusal:
    times = min(max(1, int(read["times"])), TIMES_MAX)
    return Refusal(
        node=str(read["node"]), until=timestamps.parse(read["until"]), times=times, why=str(read.get("why", ""))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What becomes of an evicted gang without pods. `until`: when to look again; None: it is forgotten now."""

    text: str
    until: float | None
    ended: bool = False  # nothing makes its pods again


def outlook(past: PastEviction, jobs: Iterable[JobPods], *, now: float, without_job_since: float | None) -> Outlook:
    """`jobs` are those of the gang that exist; `without_job_since`: when it was first seen that there are none."""
    known = list(jobs)
    if now >= past.until:
        return Outlook(text="", until=None)
    making = [job for job in known if not job.ended]
    failed = next((job for job in known if job.failed), None)
    if failed is not None and not making:
        text = f"{failed.ended}; it makes no more pods; delete it and create it again"
        return Outlook(text=text, until=past.until, ended=True)
    kept = f"its age is kept until {timestamps.seconds(past.until)}"
    if past.maker in {"Job", "JobSet"}:
        if making:
            names_ = ", ".join(job.name for job in making[:4])
            return Outlook(text=f"Job {names_} makes its pods again after its back-off; {kept}", until=past.until)
        gone_at = (now if without_job_since is None else without_job_since) + JOB_GONE_S
        if known or past.maker == "Job" or now >= gone_at:
            return Outlook(text="", until=None)
        return Outlook(text="its Job does not exist any more", until=gone_at)
    if not past.maker:
        return Outlook(text=f"its pods have no controller: create them again; {kept}", until=past.until)
    return Outlook(text=f"waits until a {past.maker} makes its pods again; {kept}", until=past.until)
