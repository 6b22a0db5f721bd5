"""Infrastructure: the release of Kubernetes, drivers, exporters, labels, topology, networks between nodes."""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.texts import counted
from fairlead.cli.health import values
from fairlead.cli.health.readiness.model import POD_MONITORS, SERVICE_MONITORS, Answer, Group, failed, passed, unknown
from fairlead.cli.health.seen import Seen, attribute, devices_of, driver_of, gpus_of, in_all, node_of
from fairlead.cli.health.support import asked_for, less
from fairlead.kube import releases
from fairlead.kube.releases import NEWEST_TRIED, OLDEST
from fairlead.kube.resources import DAEMON_SETS, DEPLOYMENTS, GANGS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw

OPERATOR_LEAST, DRIVER_LEAST, TOOLKIT_LEAST = (24, 9, 2), (535,), (1, 17, 3)
_OLDEST, _NEWEST = releases.written(OLDEST), releases.written(NEWEST_TRIED)
NO_GPU_NODE = "no node with GPUs is known: no label, no device plugin and no ResourceSlice says so"
_RDMA = ("rdma/", "openshift.io/", "nvidia.com/hostdev", "vpc.amazonaws.com/efa")
_RDMA_LABELS = ("feature.node.kubernetes.io/rdma.capable", "feature.node.kubernetes.io/rdma.available")


def gpu_nodes(seen: Seen) -> Answer | None:
    if gap := seen.gap(NODES):
        return unknown(gap)
    return None if seen.gpu_nodes else unknown(NO_GPU_NODE)


def monitors(seen: Seen, *words: str) -> list[Raw]:
    """ServiceMonitors and PodMonitors whose name or selector has one of these words."""
    return [
        each
        for resource in (SERVICE_MONITORS, POD_MONITORS)
        for each in seen.items(resource)
        if any(
            word in text
            for word in words
            for text in (
                values.name(each),
                *(
                    label
                    for label in values.mapping(each, "spec", "selector", "matchLabels").values()
                    if isinstance(label, str)
                ),
            )
        )
    ]


INFRASTRUCTURE = Group("infrastructure")


@INFRASTRUCTURE.item(
    f"Kubernetes {_OLDEST} to {_NEWEST}, with what the driver's flags need",
    "upgrade Kubernetes, turn on the feature gate that is named, or install without the flag (docs/install.md#kubernetes-versions)",
)
def kubernetes(seen: Seen) -> Answer:
    """Passes on every release that was tried; what it does not have is said, and fails only where a flag of the driver asks for it."""
    if not seen.minor:
        return unknown("the version of Kubernetes could not be read")
    if seen.minor < OLDEST:
        return failed(f"Kubernetes {seen.release} is older than {_OLDEST}")
    if asked := [f"{flag}: {line.known}, so {line.without}" for line, flag, _ in asked_for(seen)]:
        return failed("; ".join(asked))
    if seen.minor > NEWEST_TRIED:
        return unknown(f"Kubernetes {seen.release} is newer than {_NEWEST}, the newest release that was tried")
    if found := less(seen):
        return passed(f"Kubernetes {seen.release}, without: {'; '.join(line.what for line in found)}")
    return passed(f"Kubernetes {seen.release}, with all that Fairlead makes use of")


@INFRASTRUCTURE.item(
    "GPU operator 24.9.2 or later with driver 535 and container toolkit 1.17.3 or later, or Fairlead's driver with CDI",
    "install Fairlead's driver (docs/install.md), or upgrade the GPU operator",
    DEPLOYMENTS,
    DAEMON_SETS,
    RESOURCE_SLICES,
)
def gpu_driver(seen: Seen) -> Answer:
    versions = _driver_versions(seen)
    old = {found for found in versions if values.version(found) < DRIVER_LEAST}
    ours = [each for each in seen.slices if driver_of(each) == names.DRIVER and devices_of(each)]
    operators = seen.workloads("gpu-operator")
    toolkits = seen.workloads("container-toolkit")
    if old:
        return failed(f"NVIDIA's driver {values.some(old)} is older than 535")
    if ours:
        told = f"driver {values.some(versions)}" if versions else "the driver's version is not published"
        gpus = set().union(*(gpus_of(node_of(each), devices_of(each)) for each in ours))
        return passed(f"Fairlead's driver, with CDI, publishes {counted(len(gpus), 'GPU')}; {told}")
    if not operators:
        return failed("neither Fairlead's driver publishes devices nor does a GPU operator run")
    tags = [_tag(each, "gpu-operator") for each in operators]
    if any(found and found < OPERATOR_LEAST for tag in tags if (found := values.version(tag))):
        return failed(f"the GPU operator is {values.some(tags)}, older than 24.9.2")
    toolkit_tags = [_tag(each, "container-toolkit") for each in toolkits]
    if any(found and found < TOOLKIT_LEAST for tag in toolkit_tags if (found := values.version(tag))):
        return failed(f"the container toolkit is {values.some(toolkit_tags)}, older than 1.17.3")
    if not any(map(values.version, tags)) or not versions or not any(map(values.version, toolkit_tags)):
        return unknown(
            "a GPU operator runs, and its version, the driver's or the toolkit's cannot be told from images and labels"
        )
    return passed(
        f"GPU operator {values.some(tags)}, driver {values.some(versions)}, toolkit {values.some(toolkit_tags)}"
    )


def _driver_versions(seen: Seen) -> set[str]:
    found = [
        attribute(device, "driverVersion")
        for each in seen.items(RESOURCE_SLICES)
        for device in devices_of(each)
        if node_of(each)
    ]
    found += [values.labels_of(node).get("nvidia.com/cuda.driver-version.full") for node in seen.gpu_nodes]
    return {values.clean(each) for each in found if isinstance(each, str) and values.version(each)}


def _tag(workload: Raw, part: str) -> str:
    images = (values.text(each, "image") for each in values.containers(workload))
    return next((values.tag(image) for image in images if part in image), "")


@INFRASTRUCTURE.item(
    "DCGM exporter with a ServiceMonitor",
    "helm upgrade with driver.dcgmMetrics=true and monitoring.enabled=true, or the GPU operator's exporter with serviceMonitor.enabled=true",
    DAEMON_SETS,
    SERVICE_MONITORS,
)
def dcgm_exporter(seen: Seen) -> Answer:
    exporters = [values.key(each) for each in seen.workloads("dcgm-exporter")]
    exporters += [
        f"{values.key(each)} (--dcgm-metrics)"
        for each in seen.workloads("fairlead")
        if "--dcgm-metrics" in values.arguments(each)
    ]
    if not exporters:
        return failed("no DCGM exporter runs, and Fairlead's driver has no --dcgm-metrics")
    if not seen.listed(SERVICE_MONITORS).served:
        return unknown(
            f"{values.some(exporters)} exports, and without the Prometheus operator what scrapes it is not visible"
        )
    found = monitors(seen, "dcgm", "fairlead")
    if not found:
        return failed(f"{values.some(exporters)} exports, and no ServiceMonitor selects it")
    return passed(f"{values.some(exporters)}; ServiceMonitor {values.some(map(values.key, found))}")


@INFRASTRUCTURE.item(
    "node labels of GPU product, MIG capability and NVLink",
    "install GPU feature discovery, or helm upgrade with driver.nodeLabels.enabled=true (docs/driver.md)",
    given=gpu_nodes,
)
def node_labels(seen: Seen) -> Answer:
    linked = {
        node_of(each)
        for each in seen.items(RESOURCE_SLICES)
        if any(
            "nvlink" in str(key).lower() for device in devices_of(each) for key in values.mapping(device, "attributes")
        )
    }
    missing: dict[str, list[Raw]] = {}
    for node in seen.gpu_nodes:
        found = values.labels_of(node)
        for key in ("nvidia.com/gpu.product", "nvidia.com/mig.capable"):
            if key not in found:
                missing.setdefault(key, []).append(node)
        if values.name(node) not in linked and not any(
            "nvlink" in key or key == "nvidia.com/gpu.clique" for key in found
        ):
            missing.setdefault("NVLink", []).append(node)
    if missing:
        return failed("; ".join(f"{key} is not on {in_all(nodes)}" for key, nodes in sorted(missing.items())))
    return passed(
        "all GPU nodes say product and MIG capability as labels, and NVLink as a label or an attribute of their devices"
    )


@INFRASTRUCTURE.item(
    "Topology Manager single-numa-node on GPU nodes",
    "topologyManagerPolicy: single-numa-node in the kubelet configuration of GPU nodes; to read it: a role with get on nodes/proxy",
    given=gpu_nodes,
)
def topology_manager(seen: Seen) -> Answer:
    if not seen.kubelets:
        return unknown(seen.kubelets_gap or "no kubelet's configuration could be read")
    policies = {node: values.text(config, "topologyManagerPolicy") or "none" for node, config in seen.kubelets.items()}
    wrong = {node: policy for node, policy in policies.items() if policy != "single-numa-node"}
    if wrong:
        return failed(f"topologyManagerPolicy is {values.some(wrong.values())} on {values.some(wrong)}")
    if len(policies) < len(seen.gpu_nodes):
        return unknown(
            f"single-numa-node on {len(policies)} of {len(seen.gpu_nodes)} GPU nodes; of the others it was not read"
        )
    return passed(f"single-numa-node on all {len(policies)} GPU nodes")


@INFRASTRUCTURE.item(
    "NCCL topology files for multi-node training",
    "ncclTopology: true in the GpuConfig of the claims (docs/driver.md)",
    GANGS,
    PODS,
    RESOURCE_CLAIMS,
)
def nccl_topology(seen: Seen) -> Answer:
    wide = {
        values.key(each): each
        for each in seen.items(GANGS)
        if values.text(each, "status", "phase") == "Running" and len(values.sequence(each, "status", "nodes")) > 1
    }
    if not wide:
        return unknown("no gang runs on several nodes now")
    without = []
    for key, gang in wide.items():
        pods = [
            pod
            for pod in seen.items(PODS)
            if values.namespace(pod) == values.namespace(gang)
            and values.annotations_of(pod).get(names.GANG) == values.name(gang)
        ]
        if not any(_has_topology(seen, pod) for pod in pods):
            without.append(key)
    if without:
        return failed(f"gangs on several nodes without a topology file: {values.some(without)}")
    return passed(f"all {len(wide)} gangs on several nodes have a topology file")


def _has_topology(seen: Seen, pod: Raw) -> bool:
    from fairlead.cli.health.seen import claims_of

    variables = {
        values.text(each, "name")
        for container in values.objects(pod, "spec", "containers")
        for each in values.objects(container, "env")
    }
    claims = (seen.managed_claims.get((values.namespace(pod), name)) for name in claims_of(pod))
    return "NCCL_TOPO_FILE" in variables or any(
        values.value(config, "opaque", "parameters", "ncclTopology") is True
        for claim in claims
        for config in values.objects(claim, "spec", "devices", "config")
    )


@INFRASTRUCTURE.item(
    "InfiniBand or RoCE validated, NCCL bus bandwidth over 300 GB/s, where there is one",
    "run nccl-tests' all_reduce_perf over two nodes, and compare its bus bandwidth with 300 GB/s",
    given=gpu_nodes,
)
def fabric(seen: Seen) -> Answer:
    found = [
        node
        for node in seen.gpu_nodes
        if any(values.labels_of(node).get(label) == "true" for label in _RDMA_LABELS)
        or any(str(key).startswith(_RDMA) for key in values.mapping(node, "status", "allocatable"))
    ]
    if not found:
        return unknown("no GPU node says that it has InfiniBand or RoCE, by label or resource")
    return unknown(f"RDMA is on {in_all(found)}; its bandwidth is measured, not read")
