"""Causes in Kubernetes itself: its version and feature gates, its scheduler and claim controller, clocks that disagree.

Which gate is for what, and in which release it is on, is docs/install.md's table; what an operator asked for is read from the driver's flags.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.seen import Seen, written_s
from fairlead.kube.resources import DAEMON_SETS, LEASES, Raw

LEAST = (1, 34)
GATES_ON_SINCE = (1, 36)
LATE_S = 15.0
"""By how much more than its duration a lease may be old: an answer takes a while, and the apiserver's time is known to ten seconds."""
SKEW_S = 30.0
"""Of a node's clock. A kubelet's renewal may be under way for ten seconds; a certificate is backdated by more than this."""
_NEEDS = {
    "--dynamic-mig": "DRAPartitionableDevices",
    "--shared-gpus": "DRAConsumableCapacity",
    "--shared-mig": "DRAConsumableCapacity",
}
"""Flags of the driver, and the gate without which the apiserver drops what they publish."""
_KUBE_SYSTEM = "kube-system"


def api(seen: Seen) -> Iterator[Finding]:
    known = seen.serves("resource.k8s.io", "v1")
    old = bool(seen.minor) and seen.minor < LEAST
    if known is not False and not old:
        return
    yield Finding(
        code="NoResourceAPI",
        stops=Stops.EVERYTHING,
        what=(
            f"this cluster does not serve resource.k8s.io/v1, by which devices are allocated (Kubernetes {seen.release or 'of unknown version'})"
            if known is False
            else f"Kubernetes {seen.release} is older than 1.34, the first release that Fairlead runs on"
        ),
        evidence=(
            f"served of resource.k8s.io: {', '.join((seen.groups or {}).get('resource.k8s.io', ())) or 'nothing'}",
        ),
        next_step="upgrade to Kubernetes 1.34 or later, and leave DynamicResourceAllocation and its API on (docs/install.md)",
    )


def gates(seen: Seen) -> Iterator[Finding]:
    if seen.gates.get("DynamicResourceAllocation") is False:
        yield Finding(
            code="FeatureGateOff",
            stops=Stops.EVERYTHING,
            what="the feature gate DynamicResourceAllocation is off in the apiserver: claims are not stored in pods",
            next_step="take DynamicResourceAllocation=false from --feature-gates of the apiserver, scheduler, controller manager and kubelets",
        )
    for flag, gate in sorted(_NEEDS.items()):
        daemons = [each for each in driver_daemons(seen) if flag in values.arguments(each)]
        if daemons and _off(seen, gate):
            yield Finding(
                code="FeatureGateOff",
                stops=Stops.SOME,
                what=f"the driver offers devices by {flag}, and {gate} is off: the apiserver drops what they need, so requests for them wait",
                evidence=(
                    f"DaemonSet {values.some(map(values.key, daemons))}: {flag}",
                    _how_known(seen, gate),
                ),
                next_step=f"turn on {gate} in the apiserver, scheduler, controller manager and kubelets, or install without {flag} (docs/install.md)",
            )
    if _off(seen, "DRADeviceTaints"):
        yield Finding(
            code="FeatureGateOff",
            stops=Stops.NOTHING,
            what="DRADeviceTaints is off: taints of broken GPUs are dropped, and such a GPU is allocated like any other",
            evidence=(_how_known(seen, "DRADeviceTaints"),),
            next_step="turn on DRADeviceTaints, or cordon nodes with a broken GPU",
        )


def _off(seen: Seen, gate: str) -> bool:
    told = seen.gates.get(gate)
    return not told if told is not None else bool(LEAST <= seen.minor < GATES_ON_SINCE)


def _how_known(seen: Seen, gate: str) -> str:
    if gate in seen.gates:
        return f"the apiserver's metrics: {gate} is off"
    return f"Kubernetes {seen.release} has {gate} off by default; whether it was turned on is not visible ({seen.gates_gap})"


def driver_daemons(seen: Seen) -> list[Raw]:
    """DaemonSets that run Fairlead's driver."""
    return [
        each
        for each in seen.items(DAEMON_SETS)
        if values.namespace(each) == names.NAMESPACE
        and values.labels_of(each).get("app.kubernetes.io/component") == "driver"
    ]


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
        if (found := values.version(values.text(node, "status", "nodeInfo", "kubeletVersion"))[:2]) and found < LEAST
    ]
    if old:
        versions = values.some(values.text(node, "status", "nodeInfo", "kubeletVersion") for node in old)
        yield Finding(
            code="KubeletTooOld",
            stops=Stops.EVERYTHING if len(old) == len(seen.gpu_nodes) else Stops.SOME,
            what=f"{len(old)} of {len(seen.gpu_nodes)} GPU nodes have a kubelet older than 1.34, which cannot prepare claims ({versions})",
            evidence=(f"nodes {values.some(map(values.name, old))}",),
            next_step="upgrade kubelet on these nodes to 1.34 or later",
        )
