"""Causes in the release of Kubernetes and in what runs: what the release does not have of what Fairlead needs, kinds and rights that are
missing, no leader, versions that differ; Kubernetes' scheduler and claim controller, kubelets that are too old, clocks that disagree.

What an operator asked for by a flag of the driver and is not there stops what needs it; all else that is not there is one note.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.reading import RIGHTS
from fairlead.cli.health.seen import Seen, written_s
from fairlead.cli.health.support import Line, asked_for, gates_to_turn_on, less
from fairlead.kube import releases
from fairlead.kube.releases import NEWEST_TRIED, OLDEST
from fairlead.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    FLAVORS,
    GANGS,
    LEASES,
    PODS,
    QUEUES,
    TENANCY_POLICIES,
    Raw,
)

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


INSTALL = "helm upgrade --install fairlead manifests/chart --namespace fairlead-system (docs/install.md)"
BEFORE = "fairlead doctor --before-install, which says whether the cluster has what an install needs (docs/start.md)"
CONTROLLER, WEBHOOK, DRIVER = "controller", "webhook", "driver"
_OURS = (QUEUES, FLAVORS, GANGS, TENANCY_POLICIES)
_LABEL = "app.kubernetes.io/component"
LATE_S = 15.0
"""By how much more than its duration a lease may be old: an answer takes a while, and the apiserver's time is known to ten seconds."""
SKEW_S = 30.0
"""Of a node's clock. A kubelet's renewal may be under way for ten seconds; a certificate is backdated by more than this."""
_KUBE_SYSTEM = "kube-system"


def kinds(seen: Seen) -> Iterator[Finding]:
    missing = [str(each) for each in _OURS if not seen.listed(each).served]
    if not missing:
        return
    nothing = len(missing) == len(_OURS)
    yield Finding(
        code="NotInstalled" if nothing else "KindsMissing",
        stops=Stops.EVERYTHING,
        what="Fairlead is not installed on this cluster: its kinds are not served"
        if nothing
        else f"Fairlead is installed in part: the cluster does not know {', '.join(missing)}",
        next_step=BEFORE
        if nothing
        else "fairlead crds | kubectl apply --server-side --force-conflicts -f -; then see that the programs are of the same version",
    )


def rights(seen: Seen) -> Iterator[Finding]:
    missing = [right for right, allowed in seen.allowed.items() if not allowed and right in RIGHTS]
    for account in sorted({RIGHTS[right][0] for right in missing}):
        lost = [right for right in missing if RIGHTS[right][0] == account]
        yield Finding(
            code="RightsMissing",
            stops=Stops.EVERYTHING,
            what=f"{account} may not {', '.join(lost)}: its role or its binding is missing or of an older version",
            evidence=tuple(_can_i(right, account) for right in lost),
            next_step="apply the roles again: kubectl apply --server-side --force-conflicts -k manifests/base, or helm upgrade (docs/install.md)",
        )


def _can_i(right: str, account: str) -> str:
    verb, _, resource = right.partition(" ")
    return f"kubectl auth can-i {verb} {resource} --as {account} --all-namespaces: no"


def leader(seen: Seen) -> Iterator[Finding]:
    if seen.gap(LEASES):
        return
    lease = seen.one(LEASES, names.CONTROLLER_ACCOUNT, names.NAMESPACE)
    if lease is not None and not is_over(seen, lease):
        return
    told = f"there is no lease {names.NAMESPACE}/{names.CONTROLLER_ACCOUNT}" if lease is None else said(seen, lease)
    yield Finding(
        code="NoLeader",
        stops=Stops.EVERYTHING,
        what="no Fairlead controller leads: gangs are not admitted",
        evidence=(told, *state(seen, CONTROLLER)),
        next_step=f"kubectl -n {names.NAMESPACE} get pods -l {_LABEL}={CONTROLLER}; then their logs, or {INSTALL} where there are none",
    )


def state(seen: Seen, component: str) -> tuple[str, ...]:
    """What is to be seen of a program's Deployment or DaemonSet and of its pods; nothing where that could not be read."""
    resource = DAEMON_SETS if component == DRIVER else DEPLOYMENTS
    kind = resource.kind
    if seen.gap(resource):
        return ()
    found = [each for each in seen.items(resource) if _is(each, component)]
    if not found:
        return (f"there is no {kind} of the {component} in {names.NAMESPACE}",)
    lines = [_counts(kind, each) for each in found]
    pods = [each for each in seen.items(PODS) if _is(each, component)]
    lines += [f"pod {values.name(pod)}: {trouble}" for pod in pods if (trouble := _trouble(pod))][:3]
    return tuple(lines)


def _is(obj: Raw, component: str) -> bool:
    return values.namespace(obj) == names.NAMESPACE and values.labels_of(obj).get(_LABEL) == component


def _counts(kind: str, found: Raw) -> str:
    status = values.mapping(found, "status")
    if kind == "DaemonSet":
        ready, wanted = values.integer(status, "numberReady"), values.integer(status, "desiredNumberScheduled")
        return f"DaemonSet {values.name(found)}: {ready} of {wanted} ready" + (
            ": no node has a label that it selects" if not wanted else ""
        )
    wanted = values.integer(found, "spec", "replicas")
    ready = values.integer(status, "readyReplicas")
    return f"Deployment {values.name(found)}: {ready} of {wanted} ready" + (
        ": it is scaled to 0, as `fairlead prepare-uninstall --evict` does" if not wanted else ""
    )


def _trouble(pod: Raw) -> str:
    """Why a pod is not ready; "" where it is."""
    for each in values.objects(pod, "status", "containerStatuses"):
        waiting = values.mapping(each, "state", "waiting")
        if waiting:
            return values.clean(f"{values.text(waiting, 'reason')} {values.text(waiting, 'message')}".strip())
        if each.get("ready") is False:
            return "its container is not ready"
    scheduled = values.condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return values.clean(f"{values.text(scheduled, 'reason')} {values.text(scheduled, 'message')}".strip())
    return ""


def images(seen: Seen) -> Iterator[Finding]:
    found: dict[str, set[str]] = {}
    for each in (*seen.items(DEPLOYMENTS), *seen.items(DAEMON_SETS)):
        component = values.text(values.labels_of(each), _LABEL)
        if values.namespace(each) == names.NAMESPACE and component in {CONTROLLER, WEBHOOK, DRIVER}:
            for container in values.containers(each):
                if container.get("name") == component:
                    found.setdefault(values.text(container, "image"), set()).add(str(component))
    if len(found) > 1:
        yield Finding(
            code="VersionsDiffer",
            stops=Stops.NOTHING,
            what="Fairlead's programs run different images",
            evidence=tuple(f"{', '.join(sorted(programs))}: {image}" for image, programs in sorted(found.items())),
            next_step="upgrade all of them together: helm upgrade (docs/install.md)",
        )


# -- Kubernetes --------------------------------------------------------------------------------------------------------


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
