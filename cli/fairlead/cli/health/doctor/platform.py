"""Causes in what runs Kubernetes: its scheduler and claim controller, kubelets that are too old, clocks that disagree."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.seen import Seen, written_s
from fairlead.kube import releases
from fairlead.kube.resources import LEASES, Raw

LATE_S = 15.0
"""By how much more than its duration a lease may be old: an answer takes a while, and the apiserver's time is known to ten seconds."""
SKEW_S = 30.0
"""Of a node's clock. A kubelet's renewal may be under way for ten seconds; a certificate is backdated by more than this."""
_KUBE_SYSTEM = "kube-system"


def age_s(seen: Seen, lease: Raw) -> float | None:
    """Since when a lease was not renewed, by the apiserver's clock; None where it has no time."""
    renewed = written_s(lease)
    if renewed is None:
        renewed = values.time_s(lease, "spec", "renewTime")
    return None if renewed is None else seen.now - renewed


def is_over(seen: Seen, lease: Raw) -> bool:
    """Whether it has no holder, or was not renewed in its time."""
    age = age_s(seen, lease)
    lasts = values.integer(lease, "spec", "leaseDurationSeconds") or 15
    return not values.text(lease, "spec", "holderIdentity") or age is None or age > lasts + LATE_S


def control_plane(seen: Seen) -> Iterator[Finding]:
    """Absent leases say nothing: managed control planes keep them elsewhere."""
    for component, code, effect in (
        ("kube-scheduler", "NoScheduler", "pods that Fairlead releases get no node"),
        (
            "kube-controller-manager",
            "NoControllerManager",
            "claims of pods are not made, and those of ended pods not released",
        ),
    ):
        lease = seen.one(LEASES, component, _KUBE_SYSTEM)
        if lease is not None and is_over(seen, lease):
            yield Finding(
                code=code,
                stops=Stops.EVERYTHING,
                what=f"{component} does not run: {effect}",
                evidence=(said(seen, lease),),
                next_step=f"look at {component} on the control plane: kubectl -n {_KUBE_SYSTEM} get pods -l component={component}",
            )


def said(seen: Seen, lease: Raw) -> str:
    """What a lease says of its holder."""
    holder, age = values.text(lease, "spec", "holderIdentity"), age_s(seen, lease)
    if not holder:
        return f"lease {values.key(lease)} has no holder"
    return f"lease {values.key(lease)} of {holder} " + (
        "was never renewed" if age is None else f"was renewed {age:.0f} s ago"
    )


def clocks(seen: Seen) -> Iterator[Finding]:
    """A holder writes a lease's renewTime by its own clock, and the apiserver notes by its clock when that was written."""
    found: list[tuple[float, str, str]] = []
    for lease in seen.items(LEASES):
        renewed, written = values.time_s(lease, "spec", "renewTime"), written_s(lease)
        if renewed is not None and written is not None and abs(renewed - written) > SKEW_S:
            found.append((renewed - written, values.key(lease), values.text(lease, "spec", "holderIdentity")))
    if not found:
        return
    found.sort(key=lambda each: -abs(each[0]))
    lines = [
        f"{holder or lease} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the apiserver (lease {lease})"
        for skew, lease, holder in found[:5]
    ]
    yield Finding(
        code="ClockSkew",
        stops=Stops.SOME,
        what="clocks disagree: certificates and tokens of a machine whose clock is wrong are refused, and times of waits are wrong",
        evidence=(*lines, *([f"and {len(found) - 5} more"] if len(found) > 5 else ())),
        next_step="synchronize these machines by NTP: chronyc tracking, timedatectl status",
    )


def kubelets(seen: Seen) -> Iterator[Finding]:
    old = [
        node
        for node in seen.gpu_nodes
        if (found := values.version(values.text(node, "status", "nodeInfo", "kubeletVersion"))[:2])
        and found < releases.OLDEST
    ]
    if old:
        versions = values.some(values.text(node, "status", "nodeInfo", "kubeletVersion") for node in old)
        yield Finding(
            code="KubeletTooOld",
            stops=Stops.EVERYTHING if len(old) == len(seen.gpu_nodes) else Stops.SOME,
            what=f"{len(old)} of {len(seen.gpu_nodes)} GPU nodes have a kubelet older than {releases.written(releases.OLDEST)}, which cannot prepare claims ({versions})",
            evidence=(f"nodes {values.some(map(values.name, old))}",),
            next_step="upgrade kubelet on these nodes to the apiserver's release",
        )
