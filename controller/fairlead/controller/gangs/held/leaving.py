"""Deleted pods that hold devices still: since when, until when others wait for them, and which are told to end sooner.

A user may delete a pod with any grace period. Others wait for it no longer than `maxTerminationGrace` allows: then its devices
are not awaited any more, and where a gang waits it is deleted again with a grace of one second, which Kubernetes lets shorten
the first. Never with none: that removes the pod from the API while its containers run, and its devices would be given twice.
What kubelet does not end, and what finalizers keep, stays: its devices are used until the claim is free. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.controller.gangs.membership.gangs import Gang, created_s
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.kube import core, timestamps

GRACE_S = 1  # of the second deletion
LISTED_MAX = 4


def leaving_since(pod: core.Pod) -> float | None:
    """Unix seconds of the deletion; None where the pod is not deleted, or does not say."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None
    try:
        since = timestamps.parse(meta.deletion_timestamp) - max(0, meta.deletion_grace_period_seconds or 0)
        return max(since, created_s(pod))  # a period of more than 292 years overflows in the apiserver
    except ValueError:
        return None


def holding(gang: Gang) -> tuple[Member, ...]:
    """The deleted pods of the gang that run still and hold devices."""
    return tuple(
        member
        for member in gang.at(Stage.RELEASED)
        if member.terminating and any(claim.allocated for claim in member.claims)
    )


def to_shorten(members: Iterable[Member], bound_s: float, now: float) -> tuple[tuple[Member, ...], float | None]:
    """Those that have had the time of the bound and would take more; and when the next ones have."""
    late: list[Member] = []
    soonest: float | None = None
    for member in members:
        since, asked_s = leaving_since(member.pod), member.pod.metadata.deletion_grace_period_seconds or 0
        if since is None or asked_s <= max(bound_s, GRACE_S):
            continue
        if since + bound_s <= now:
            late.append(member)
        elif soonest is None or since + bound_s < soonest:
            soonest = since + bound_s
    return tuple(late), soonest


def description(members: Iterable[Member], bound_s: float) -> str:
    """For users: which pods are leaving since when, until when others wait for them, and what keeps them; "" for none."""
    found: list[str] = []
    for member in members:
        since, meta = leaving_since(member.pod), member.pod.metadata
        if since is None:
            continue
        text = f"pod {meta.key} is leaving since {timestamps.seconds(since)}"
        text += f", counted as free from {timestamps.seconds(since + bound_s)}: others wait for its devices until then"
        if meta.finalizers:
            text += f"; kept by its finalizers {', '.join(meta.finalizers[:LISTED_MAX])}"
        found.append(text)
    more = f"; and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return "; ".join(found[:LISTED_MAX]) + more
