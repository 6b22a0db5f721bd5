"""Causes in the release of Kubernetes: its resource API, feature gates, and what it does not have of what Fairlead needs.

What each release has is the table of `fairlead.kube.releases`, which docs/install.md shows; what this cluster has is `support`'s. What an
operator asked for by a flag of the driver and is not there stops what needs it; all else that is not there is one note, which says what
Fairlead does without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.seen import Seen
from fairlead.cli.health.support import Line, asked_for, gates_to_turn_on, less
from fairlead.kube import releases
from fairlead.kube.releases import NEWEST_TRIED, OLDEST

_OLDEST, _NEWEST = releases.written(OLDEST), releases.written(NEWEST_TRIED)
_TABLE = "docs/install.md#kubernetes-versions"
_EVERYWHERE = "the apiserver, scheduler, controller manager and kubelets"


def api(seen: Seen) -> Iterator[Finding]:
    known = seen.serves("resource.k8s.io", "v1")
    old = bool(seen.minor) and seen.minor < OLDEST
    if known is not False and not old:
        return
    yield Finding(
        code="NoResourceAPI",
        stops=Stops.EVERYTHING,
        what=(
            f"this cluster does not serve resource.k8s.io/v1, by which devices are allocated (Kubernetes {seen.release or 'of unknown version'})"
            if known is False
            else f"Kubernetes {seen.release} is older than {_OLDEST}, the first release that Fairlead runs on"
        ),
        evidence=(
            f"served of resource.k8s.io: {', '.join((seen.groups or {}).get('resource.k8s.io', ())) or 'nothing'}",
        ),
        next_step=f"upgrade to Kubernetes {_OLDEST} to {_NEWEST}, and leave DynamicResourceAllocation and its API on (docs/install.md)",
    )


def gates(seen: Seen) -> Iterator[Finding]:
    if seen.gates.get("DynamicResourceAllocation") is False:
        yield Finding(
            code="FeatureGateOff",
            stops=Stops.EVERYTHING,
            what="the feature gate DynamicResourceAllocation is off in the apiserver: claims are not stored in pods",
            next_step=f"take DynamicResourceAllocation=false from --feature-gates of {_EVERYWHERE}",
        )
    for line, flag, daemons in asked_for(seen):
        yield Finding(
            code="FeatureGateOff",
            stops=Stops.SOME,
            what=(
                f"the driver is to offer devices by {flag}, and the apiserver drops what they need: {line.without}; "
                "pods that ask for such devices wait"
            ),
            evidence=(f"DaemonSet {values.some(map(values.key, daemons))}: {flag}", line.known),
            next_step=f"turn on {line.need.gate} in {_EVERYWHERE}, or install without {flag} ({_TABLE})",
        )


def lacking(seen: Seen) -> Iterator[Finding]:
    found = less(seen)
    if not found:
        return
    off = ", ".join(gates_to_turn_on(seen, found))
    yield Finding(
        code="NotOnThisCluster",
        stops=Stops.NOTHING,
        what=f"{counted(len(found), 'thing')} that Kubernetes {_NEWEST} has as it comes {'is' if len(found) == 1 else 'are'} not on this cluster",
        evidence=tuple(map(_said, found)),
        next_step=(
            f"nothing has to be done; to have them, upgrade to Kubernetes {_NEWEST}{f', or turn on {off}' if off else ''} ({_TABLE})"
        ),
    )


def _said(line: Line) -> str:
    return f"{line.what}: {line.known}; without it: {line.without}"


def untried(seen: Seen) -> Iterator[Finding]:
    if not seen.minor or seen.minor <= NEWEST_TRIED:
        return
    yield Finding(
        code="ReleaseNotTried",
        stops=Stops.NOTHING,
        what=f"Kubernetes {seen.release} is newer than {_NEWEST}, the newest release on which Fairlead was tried",
        next_step=f"try your workloads before you rely on it; what was tried and what is known of later releases: {_TABLE}",
    )
