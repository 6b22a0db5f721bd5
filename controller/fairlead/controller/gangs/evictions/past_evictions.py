"""A gang's last eviction, on its Gang object: since when the gang is queued, so that its recreated pods keep their age.

A gang that is rolled back since kube-scheduler refused its pods is evicted, too: then the nodes are told, for the next leader.

How long it is remembered follows from what makes the pods again. The Job controller waits longest: its back-off is at most
600 s and begins when the last pod has ended, at most its grace period after the eviction. On top comes a margin for a
controller-manager or an apiserver that is away meanwhile. Without pods, a gang is forgotten sooner where nothing makes them
again: its Job is complete or was deleted. Text that cannot be read counts as absent. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.api import names
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, mark_of
from fairlead.controller.gangs.evictions.moved import HELD_S, Spot, read_spot
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.jobs import JobPods
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.kube import timestamps

JOB_BACKOFF_MAX_S = 600.0  # MaxJobPodFailureBackOff of pkg/controller/job, 1.36
MARGIN_S = 300.0
TEXT_MAX = 131_072  # characters of a record that is read; ours are shorter
PLACE_MAX = 100_000  # characters of a place that is written
REFUSED_MAX = 100  # nodes that are told
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
    owner: str = ""  # UID of the owner of a gang of one: its next pod has another name
    maker: str = ""  # kind of what makes its pods: "Job", "ReplicaSet"; "" for bare pods
    place: tuple[Spot, ...] = ()  # that is held for its new pods, where it moved
    held_until: float = 0.0
    refused: tuple[Refusal, ...] = ()  # where it was rolled back for that: it had not started

    @property
    def waits_since(self) -> float:
        return self.queued_since if self.refused else self.at

    @property
    def description(self) -> str:
        return f"evicted at {timestamps.seconds(self.at)}: {self.mark}: {self.why}"

    def annotation(self) -> str:
        fields: dict[str, Any] = {
            "at": timestamps.seconds(self.at),
            "since": timestamps.seconds(self.queued_since),
            "what": self.mark,
            "why": self.why,
            "until": timestamps.seconds(self.until),
            "owner": self.owner,
            "maker": self.maker,
        }
        if self.place:
            fields["place"] = [spot.to_json() for spot in self.place]
            fields["held"] = timestamps.seconds(self.held_until)
        if self.refused:
            fields["refused"] = [
                {"node": each.node, "until": timestamps.seconds(each.until), "times": each.times, "why": each.why}
                for each in self.refused
            ]
        return json.dumps(fields)


def eviction_of(
    gang: Gang, members: Iterable[Member], mark: EvictionMark, *, at: float, queued_since: float
) -> PastEviction:
    """The eviction of these members, now."""
    evicted = list(members)
    made = _eviction(gang, evicted, str(mark), mark.why, at=at, queued_since=queued_since)
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
    controller = evicted[0].pod.metadata.controller
    return PastEviction(
        at=at,
        queued_since=queued_since,
        mark=what,
        why=why,
        until=at + _grace_s(evicted) + JOB_BACKOFF_MAX_S + MARGIN_S,
        owner=evicted[0].owner if gang.solo else "",
        maker=controller.kind if controller is not None else "",
    )


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
    too_long = len(json.dumps([spot.to_json() for spot in spots])) > PLACE_MAX
    return () if too_long else tuple(spots)


def past_eviction(raw: Mapping[str, Any]) -> PastEviction | None:
    """Of a Gang object as the API shows it."""
    text = (raw.get("metadata", {}).get("annotations") or {}).get(names.EVICTED)
    if not isinstance(text, str) or not text or len(text) > TEXT_MAX:
        return None
    try:
        read = json.loads(text)
        at = timestamps.parse(read["at"])
        until = read.get("until")
        return PastEviction(
            at=at,
            queued_since=timestamps.parse(read["since"]),
            mark=str(read["what"]),
            why=str(read["why"]),
            until=timestamps.parse(until) if until else at + JOB_BACKOFF_MAX_S + MARGIN_S,
            owner=str(read["owner"]),
            maker=str(read.get("maker", "")),
            place=tuple(read_spot(each) for each in (read.get("place") or ())),
            held_until=timestamps.parse(read["held"]) if read.get("held") else 0.0,
            refused=tuple(_read_refusal(each) for each in (read.get("refused") or ())),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


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
    if past.maker == "Job":
        if making:
            names_ = ", ".join(job.name for job in making[:4])
            return Outlook(text=f"Job {names_} makes its pods again after its back-off; {kept}", until=past.until)
        gone_at = (now if without_job_since is None else without_job_since) + JOB_GONE_S
        if known or now >= gone_at:
            return Outlook(text="", until=None)
        return Outlook(text="its Job does not exist any more", until=gone_at)
    if not past.maker:
        return Outlook(text=f"its pods have no controller: create them again; {kept}", until=past.until)
    return Outlook(text=f"waits until a {past.maker} makes its pods again; {kept}", until=past.until)
