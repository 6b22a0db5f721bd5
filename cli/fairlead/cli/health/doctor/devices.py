"""Causes at the nodes: devices that are not published, stale or unusable, a runtime without CDI, a second driver of the same GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fairlead.api import names, pool_homes
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.doctor.programs import DRIVER, INSTALL, state
from fairlead.cli.health.seen import (
    FOREIGN_GPU_DRIVERS,
    Seen,
    devices_of,
    driver_of,
    generation_of,
    gpus_of,
    has_gpu_label,
    is_ready,
    node_of,
    plugin_gpus,
    pool_of,
)
from fairlead.kube.resources import EVENTS, NODES, RESOURCE_SLICES, Raw

RECENT_S = 1800.0
_CDI_SINCE = {"containerd": (2, 0), "cri-o": (1, 27)}
"""The first version that has CDI on without being told to (docs/install.md)."""
_BLOCKS = {"NoSchedule", "NoExecute"}


def published(seen: Seen) -> Iterator[Finding]:
    if seen.gap(RESOURCE_SLICES) or not seen.listed(RESOURCE_SLICES).served:
        return
    for driver in seen.drivers:
        ours = [each for each in seen.slices if driver_of(each) == driver]
        if any(devices_of(each) for each in ours):
            continue
        others = sorted({driver_of(each) for each in seen.items(RESOURCE_SLICES)} - set(seen.drivers) - {""})
        lines = [f"ResourceSlices of {driver}: " + (f"{len(ours)}, without devices" if ours else "none")]
        if others:
            lines.append(
                f"other drivers publish: {values.some(others)} (--managed-driver, where Fairlead allocates theirs)"
            )
        labelled = [node for node in seen.items(NODES) if has_gpu_label(node)]
        if driver == names.DRIVER:
            lines += state(seen, DRIVER)
            if not labelled and not seen.gap(NODES):
                lines.append("no node has a label by which the driver's DaemonSet takes it for a GPU node")
        yield Finding(
            code="NoSlices",
            stops=Stops.EVERYTHING,
            what=f"no driver publishes devices of {driver}: there is nothing to allocate",
            evidence=tuple(lines),
            next_step=_driver_step(seen, labelled) if driver == names.DRIVER else f"install the DRA driver of {driver}",
        )


def _driver_step(seen: Seen, labelled: list[Raw]) -> str:
    if any(line.startswith("there is no DaemonSet") for line in state(seen, DRIVER)):
        return INSTALL
    if not labelled and not seen.gap(NODES):
        return "kubectl label node NODE fairlead.dev/gpu=true, or install Node Feature Discovery"
    return f"kubectl -n {names.NAMESPACE} logs daemonset/fairlead-driver: whether NVML was found and kubelet answered"


def partly_published(seen: Seen) -> Iterator[Finding]:
    """GPU nodes of which nothing is published, while others' devices are."""
    if not seen.driver_nodes or seen.gap(NODES, RESOURCE_SLICES):
        return
    foreign = {node_of(each) for each in seen.items(RESOURCE_SLICES) if driver_of(each) in FOREIGN_GPU_DRIVERS}
    silent = [
        node
        for node in seen.gpu_nodes
        if values.name(node) not in seen.driver_nodes | foreign and not plugin_gpus(node) and is_ready(node)
    ]
    if silent:
        yield Finding(
            code="NodesWithoutSlices",
            stops=Stops.SOME,
            what=f"{len(silent)} of {len(seen.gpu_nodes)} GPU nodes publish no devices",
            evidence=(f"nodes {values.some(map(values.name, silent))}", *state(seen, DRIVER)),
            next_step=f"kubectl -n {names.NAMESPACE} get pods -o wide -l app.kubernetes.io/component={DRIVER}; then the log of the driver on such a node",
        )


def stale(seen: Seen) -> Iterator[Finding]:
    """What is published and does not hold: of nodes that are gone or away, and pools of which a slice is missing."""
    if seen.gap(NODES, RESOURCE_SLICES) or not (seen.slices or seen.strangers):
        return
    nodes = {values.name(node): node for node in seen.items(NODES)}
    of_nodes = sorted({node for each in seen.slices if (node := node_of(each))})
    gone = [node for node in of_nodes if node not in nodes]
    away = [node for node in of_nodes if node in nodes and not is_ready(nodes[node])]
    lines: list[str] = []
    if gone:
        lines.append(f"of nodes that do not exist: {values.some(gone)}")
    if away:
        lines.append(f"of nodes that are not Ready: {values.some(away)}")
    pools: dict[tuple[str, str], list[Raw]] = {}
    for each in seen.slices:
        pools.setdefault(pool_of(each), []).append(each)
    torn = [
        f"{pool} has {len(found)} of {wanted} slices of generation {generation_of(found[0])}"
        for (_, pool), found in sorted(pools.items())
        if len(found) != (wanted := values.integer(found[0], "spec", "pool", "resourceSliceCount"))
    ]
    lines += [f"pool {each}" for each in torn[:5]]
    lines += [
        pool_homes.stranger_text(values.name(each), node_of(each) or None, *pool_of(each))
        for each in seen.strangers[:5]
    ]
    crowded = {
        pool: of_node
        for pool, found in sorted(pools.items())
        if (of_node := pool_homes.crowded_node((node_of(each), _size(each)) for each in found))
    }
    lines += [pool_homes.crowded_text(of_node, *pool) for pool, of_node in list(crowded.items())[:5]]
    if lines:
        whole = len(set(gone) | set(away)) == len(of_nodes) or len(torn) == len(pools)
        yield Finding(
            code="SlicesStale",
            stops=Stops.EVERYTHING if whole else Stops.SOME,
            what=("all" if whole else "some")
            + " published devices cannot be used: their ResourceSlices are stale or incomplete",
            evidence=tuple(lines),
            next_step="bring these nodes back, or delete them (their slices go with them); of an incomplete pool look at the driver's log on its node",
        )


def _size(slice_: Raw) -> int:
    return len(devices_of(slice_)) + len(values.objects(slice_, "spec", "sharedCounters"))


def _gpus(devices: Iterable[tuple[str, Raw]]) -> set[tuple[str, str]]:
    return {gpu for node, device in devices for gpu in gpus_of(node, [device])}


def unusable(seen: Seen) -> Iterator[Finding]:
    """GPUs all of which is tainted, or on a node that takes no pods."""
    if seen.gap(NODES, RESOURCE_SLICES):
        return
    nodes = {values.name(node): node for node in seen.items(NODES)}
    devices = [(node_of(each), device) for each in seen.slices for device in devices_of(each)]
    if not devices:
        return
    cordoned = {node for node, _ in devices if values.value(nodes.get(node), "spec", "unschedulable") is True}
    well = [
        (node, device)
        for node, device in devices
        if not any(values.text(taint, "effect") in _BLOCKS for taint in values.objects(device, "taints"))
    ]
    every, usable = _gpus(devices), _gpus((node, device) for node, device in well if node not in cordoned)
    tainted, bad = every - _gpus(well), every - usable
    if not bad:
        return
    lines = ([f"{counted(len(tainted), 'GPU')} tainted"] if tainted else []) + (
        [f"cordoned: {'node' if len(cordoned) == 1 else 'nodes'} {values.some(cordoned)}"] if cordoned else []
    )
    whole = bad == every
    yield Finding(
        code="DevicesUnusable",
        stops=Stops.EVERYTHING if whole else Stops.NOTHING,
        what=f"{'all' if whole else f'{len(bad)} of'} {counted(len(every), 'published GPU')} are tainted, or on nodes that are cordoned",
        evidence=tuple(lines),
        next_step="fairlead device list, fairlead repair --list and the driver's log say why a device is tainted; kubectl uncordon NODE",
    )


def runtime(seen: Seen) -> Iterator[Finding]:
    """CDI, by which containers get their devices, as far as the runtime's version tells."""
    without: dict[str, list[str]] = {}
    for node in seen.gpu_nodes:
        told = values.text(node, "status", "nodeInfo", "containerRuntimeVersion")
        runtime_name, _, number = told.partition("://")
        least = _CDI_SINCE.get(runtime_name)
        if runtime_name == "docker" or (least is not None and (found := values.version(number)) and found[:2] < least):
            without.setdefault(told, []).append(values.name(node))
    if without:
        count = sum(map(len, without.values()))
        yield Finding(
            code="RuntimeWithoutCDI",
            stops=Stops.EVERYTHING if count == len(seen.gpu_nodes) else Stops.SOME,
            what=f"the container runtime of {count} of {len(seen.gpu_nodes)} GPU nodes has CDI off by default, or none: containers do not start with their devices",
            evidence=tuple(f"{told}: nodes {values.some(found)}" for told, found in sorted(without.items())),
            next_step="containerd 2.0 or later, or CRI-O 1.27 or later; of containerd 1.7 enable_cdi = true and cdi_spec_dirs in its CRI plugin does, and then this can be passed over",
        )


def two_drivers(seen: Seen) -> Iterator[Finding]:
    """A device plugin or another DRA driver beside ours gives out the same GPUs a second time."""
    if names.DRIVER not in seen.drivers:
        return
    ours = {node_of(each) for each in seen.slices if driver_of(each) == names.DRIVER and devices_of(each)}
    plugin = [values.name(node) for node in seen.items(NODES) if values.name(node) in ours and plugin_gpus(node)]
    others = {
        (driver_of(each), node_of(each))
        for each in seen.items(RESOURCE_SLICES)
        if driver_of(each) in FOREIGN_GPU_DRIVERS and node_of(each) in ours and devices_of(each)
    }
    if plugin or others:
        lines = [f"device plugin ({names.LEGACY_GPU}): nodes {values.some(plugin)}"] if plugin else []
        lines += [
            f"DRA driver {driver}: nodes {values.some(node for each, node in others if each == driver)}"
            for driver in sorted({driver for driver, _ in others})
        ]
        yield Finding(
            code="TwoDriversOnANode",
            stops=Stops.SOME,
            what="another driver gives out the same GPUs as Fairlead's on these nodes: two pods can get one GPU",
            evidence=tuple(lines),
            next_step="keep it off these nodes; with the GPU operator: kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=false",
        )


def preparing(seen: Seen) -> Iterator[Finding]:
    """Kubelet's events of pods whose devices could not be prepared, and what the message is known to mean."""
    recent = [event for event in seen.items(EVENTS) if (at := _last_s(event)) is not None and seen.now - at < RECENT_S]
    if not recent:
        return
    messages = {values.text(event, "message") for event in recent}
    pods = {
        f"{values.text(event, 'involvedObject', 'namespace')}/{values.text(event, 'involvedObject', 'name')}"
        for event in recent
    }
    step = next(
        (step for pattern, step in _PREPARE if any(re.search(pattern, message) for message in messages)),
        f"kubectl -n {names.NAMESPACE} logs daemonset/fairlead-driver on these pods' nodes",
    )
    yield Finding(
        code="PrepareFails",
        stops=Stops.SOME,
        what=f"kubelet could not prepare the devices of {len(pods)} pods in the last {RECENT_S / 60:.0f} minutes",
        evidence=(f"pods {values.some(pods)}", *sorted(messages)[:3]),
        next_step=step,
    )


_PREPARE = (
    (
        r"(?i)driver.*not registered",
        "see that the driver runs on the node, and that its --registry-dir is kubelet's plugins_registry",
    ),
    (
        r"(?i)unresolvable CDI|CDI",
        "see that the runtime reads /var/run/cdi: containerd 2.0 or later, cdi_spec_dirs (docs/driver.md)",
    ),
    (r"(?i)being repaired|repair of", "fairlead repair --list; delete the pod, so that it is placed again"),
)


def _last_s(event: Raw) -> float | None:
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if (found := values.time_s(event, field)) is not None:
            return found
    return values.time_s(event, "metadata", "creationTimestamp")
