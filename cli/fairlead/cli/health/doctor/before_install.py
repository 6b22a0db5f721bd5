"""What an install would meet: nodes without a label, GPUs that a device plugin or another DRA driver gives out, rights that the user lacks,
and labels of namespaces. Causes that hold with and without Fairlead are those of `programs` and `devices`.

docs/start.md is the page for it; what no API shows (CDI of a runtime whose version is unknown, NVIDIA's driver on a host) is said there.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import names
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.seen import (
    FOREIGN_GPU_DRIVERS,
    Seen,
    devices_of,
    driver_of,
    has_gpu_label,
    in_all,
    legacy_limits,
    node_of,
    plugin_gpus,
)
from fairlead.kube.resources import DEVICE_CLASSES, GANGS, NAMESPACES, NODES, PODS, RESOURCE_SLICES, Raw

_PAGE = "docs/start.md"
_ENFORCE = "pod-security.kubernetes.io/enforce"
_LABEL = f"kubectl label namespace {names.NAMESPACE} --overwrite {names.IGNORE_LABEL}=true {_ENFORCE}=privileged"
_CERT_MANAGER = "cert-manager.io"
_DRAIN = (
    "node by node: kubectl drain NODE --ignore-daemonsets --delete-emptydir-data, kubectl label node NODE "
    f"nvidia.com/gpu.deploy.device-plugin=false, kubectl uncordon NODE ({_PAGE}#4-pods-that-run-under-the-device-plugin)"
)


def summary(seen: Seen) -> str:
    """What was looked at, in a line: `Kubernetes v1.36.2; 3 GPU nodes: a, b, c; runtimes: containerd://2.1.0`."""
    runtimes = {values.text(node, "status", "nodeInfo", "containerRuntimeVersion") for node in seen.gpu_nodes}
    nodes = f": {values.some(map(values.name, seen.gpu_nodes))}" if seen.gpu_nodes else ""
    return "; ".join(
        (
            f"Kubernetes {seen.release or 'of unknown version'}",
            f"{counted(len(seen.gpu_nodes), 'GPU node')}{nodes}",
            *([f"container runtime {values.some(runtimes - {''})}"] if runtimes - {""} else ()),
        )
    )


def kubelet_gates(seen: Seen) -> Iterator[Finding]:
    off = [
        node
        for node, config in seen.kubelets.items()
        if values.value(config, "featureGates", "DynamicResourceAllocation") is False
    ]
    if off:
        yield Finding(
            code="FeatureGateOff",
            stops=Stops.EVERYTHING if len(off) == len(seen.kubelets) else Stops.SOME,
            what="the feature gate DynamicResourceAllocation is off in kubelets, which then prepare no claim",
            evidence=(f"nodes {values.some(off)}: featureGates of /configz",),
            next_step="take DynamicResourceAllocation: false from the kubelet configuration of these nodes, and restart kubelet",
        )


def gpu_nodes(seen: Seen) -> Iterator[Finding]:
    """Without a label that the driver's DaemonSet selects no driver starts on a node."""
    if seen.gap(NODES):
        return
    label = "kubectl label node NODE fairlead.dev/gpu=true, or install Node Feature Discovery"
    if not seen.gpu_nodes:
        yield Finding(
            code="NoGpuNode",
            stops=Stops.EVERYTHING,
            what="no node says that it has GPUs: no label, no device plugin and no ResourceSlice",
            evidence=(
                f"{counted(len(seen.items(NODES)), 'node')}: {values.some(map(values.name, seen.items(NODES)))}",
            ),
            next_step=label,
        )
    silent = [node for node in seen.gpu_nodes if not has_gpu_label(node)]
    if silent:
        yield Finding(
            code="GpuNodesWithoutLabel",
            stops=Stops.SOME,
            what=f"{len(silent)} of {len(seen.gpu_nodes)} GPU nodes have no label by which the driver's DaemonSet takes them",
            evidence=(in_all(silent),),
            next_step=label,
        )


def rights(seen: Seen) -> Iterator[Finding]:
    missing = [right for right, allowed in seen.allowed.items() if not allowed]
    if missing:
        yield Finding(
            code="MayNotInstall",
            stops=Stops.EVERYTHING,
            what=f"you may not do {len(missing)} of {len(seen.allowed)} things that an install does",
            evidence=tuple(f"kubectl auth can-i {right} -n {names.NAMESPACE}: no" for right in missing),
            next_step="install as a user with the ClusterRole cluster-admin, or ask for one with these rights",
        )


def namespace(seen: Seen) -> Iterator[Finding]:
    if seen.gap(NAMESPACES):
        return
    found = seen.one(NAMESPACES, names.NAMESPACE)
    if found is None:
        yield Finding(
            code="NoNamespace",
            stops=Stops.NOTHING,
            what=f"the namespace {names.NAMESPACE} is not there yet",
            next_step=f"kubectl create namespace {names.NAMESPACE}, and {_LABEL}",
        )
        return
    labels = values.labels_of(found)
    wrong = [
        f"{key}: {values.clean(str(labels.get(key) or 'not there'))}, wanted: {wanted}"
        for key, wanted in ((names.IGNORE_LABEL, "true"), (_ENFORCE, "privileged"))
        if labels.get(key) != wanted
    ]
    if wrong:
        yield Finding(
            code="NamespaceLabels",
            stops=Stops.EVERYTHING,
            what=f"the namespace {names.NAMESPACE} lacks labels: the driver's pods, which mount the GPUs, are refused at another level than privileged",
            evidence=tuple(wrong),
            next_step=_LABEL,
        )


def device_plugin(seen: Seen) -> Iterator[Finding]:
    """Two pods can get one GPU where the plugin runs beside a driver; and what runs under it is invisible to Fairlead."""
    nodes = [node for node in seen.items(NODES) if plugin_gpus(node)]
    users = [pod for pod in seen.items(PODS) if legacy_limits(pod) and _runs(pod)]
    if not nodes and not users:
        return
    daemons = [values.key(each) for each in seen.workloads("device-plugin")]
    yield Finding(
        code="DevicePluginRuns",
        stops=Stops.SOME,
        what=f"NVIDIA's device plugin gives out GPUs ({counted(len(nodes), 'node')}, {counted(len(users), 'pod')}): beside Fairlead's driver two pods could get one GPU",
        evidence=(
            *([f"{names.LEGACY_GPU} is allocatable on {in_all(nodes)}"] if nodes else ()),
            *([f"pods {values.some(map(values.key, users))}"] if users else ()),
            *([f"DaemonSet {values.some(daemons)}"] if daemons else ()),
        ),
        next_step=_DRAIN,
    )


def _runs(pod: Raw) -> bool:
    return bool(values.text(pod, "spec", "nodeName")) and values.text(pod, "status", "phase") not in {
        "Succeeded",
        "Failed",
    }


def other_driver(seen: Seen) -> Iterator[Finding]:
    if seen.gap(RESOURCE_SLICES):
        return
    for driver in FOREIGN_GPU_DRIVERS:
        nodes = {
            node_of(each) for each in seen.items(RESOURCE_SLICES) if driver_of(each) == driver and devices_of(each)
        }
        classes = [
            values.name(each)
            for each in seen.items(DEVICE_CLASSES)
            if driver in values.name(each) and values.text(each, "spec", "extendedResourceName")
        ]
        if driver in seen.drivers or not nodes:
            continue
        yield Finding(
            code="OtherGpuDriver",
            stops=Stops.SOME,
            what=f"another DRA driver, {driver}, publishes the GPUs of {counted(len(nodes - {''}), 'node')}",
            evidence=(
                f"nodes {values.some(nodes - {''})}",
                *(
                    [
                        f"DeviceClass {values.some(classes)} has an extendedResourceName, which kube-scheduler would serve by itself"
                    ]
                    if classes
                    else ()
                ),
            ),
            next_step=f"keep it, and let Fairlead allocate its devices: managedDrivers=[{driver}] and driver.enabled=false (docs/install.md#with-another-driver); or uninstall it",
        )


def driver_container(seen: Seen) -> Iterator[Finding]:
    found = [values.key(each) for each in seen.workloads("nvidia/driver")]
    if found:
        yield Finding(
            code="DriverInContainer",
            stops=Stops.NOTHING,
            what="the GPU operator brings NVIDIA's driver in a container",
            evidence=(f"DaemonSet {values.some(found)}",),
            next_step="install with --set driver.driverRoot=/run/nvidia/driver",
        )


def left_out(seen: Seen) -> Iterator[Finding]:
    found = [
        values.name(each)
        for each in seen.items(NAMESPACES)
        if names.IGNORE_LABEL in values.labels_of(each) and values.name(each) != names.NAMESPACE
    ]
    if found:
        yield Finding(
            code="NamespacesLeftOut",
            stops=Stops.NOTHING,
            what=f"Fairlead will leave out {counted(len(found), 'namespace')}, by label: pods there get no devices of its drivers",
            evidence=(values.some(found),),
            next_step=f"kubectl label namespace NAME {names.IGNORE_LABEL}-, where that is not meant",
        )


def certificates(seen: Seen) -> Iterator[Finding]:
    if seen.serves(_CERT_MANAGER):
        yield Finding(
            code="CertManagerIsThere",
            stops=Stops.NOTHING,
            what="cert-manager is installed, and can make the webhook's certificate; without it the webhook makes and renews its own",
            next_step="nothing has to be done; to use it: --set certManager.enabled=true",
        )


def installed(seen: Seen) -> Iterator[Finding]:
    if seen.groups is not None and seen.serves(GANGS.group):
        yield Finding(
            code="AlreadyInstalled",
            stops=Stops.NOTHING,
            what="Fairlead's kinds are served: it is installed on this cluster, or was",
            next_step="fairlead doctor, without --before-install",
        )
