"""Causes in Fairlead's own programs: kinds that are not installed, rights that are missing, no leader, versions that differ."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.doctor.platform import is_over, said
from fairlead.cli.health.reading import RIGHTS
from fairlead.cli.health.seen import Seen
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

INSTALL = "helm upgrade --install fairlead manifests/chart --namespace fairlead-system (docs/install.md)"
CONTROLLER, WEBHOOK, DRIVER = "controller", "webhook", "driver"
_OURS = (QUEUES, FLAVORS, GANGS, TENANCY_POLICIES)
_LABEL = "app.kubernetes.io/component"


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
        next_step=INSTALL
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
        ": it is scaled to 0, as `fairlead drain --evict` does" if not wanted else ""
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
