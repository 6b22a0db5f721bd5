"""Security, storage and network, MLOps, validation: what tenants may, what data comes from, what runs workflows, what was tried."""

from __future__ import annotations

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.readiness.model import CSI_DRIVERS, Answer, Group, failed, passed, unknown
from fairlead.cli.health.readiness.scheduling import SAVES, namespaces
from fairlead.cli.health.seen import Seen
from fairlead.kube.resources import (
    GANGS,
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    TENANCY_POLICIES,
)

ENFORCE = "pod-security.kubernetes.io/enforce"
_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
_OBJECT_STORES = ("s3", "gcsfuse", "blob.csi.azure", "cosi", "juicefs", "alluxio", "minio", "rook-ceph.bucket")
_BY_HAND = "no API shows it"


SECURITY = Group("security")


@SECURITY.item(
    "Pod Security restricted on GPU namespaces",
    f"kubectl label namespace NAMESPACE {ENFORCE}=restricted, or fairlead tenant create NAME (docs/tenants.md)",
    NAMESPACES,
    given=namespaces,
)
def pod_security(seen: Seen) -> Answer:
    levels = {values.name(each): values.labels_of(each).get(ENFORCE) for each in seen.items(NAMESPACES)}
    open_ = [
        f"{each} ({levels.get(each) or 'no level'})" for each in seen.gpu_namespaces if levels.get(each) != "restricted"
    ]
    if open_:
        return failed(
            f"namespaces with GPU work that do not enforce restricted: {values.some(map(values.clean, open_))}"
        )
    return passed(f"restricted is enforced in all {len(seen.gpu_namespaces)} namespaces with GPU work")


@SECURITY.item(
    "NetworkPolicies isolate tenants and restrict egress",
    "fairlead tenant create NAME makes them (docs/tenants.md)",
    NETWORK_POLICIES,
    given=namespaces,
)
def network_policies(seen: Seen) -> Answer:
    kept: dict[str, set[str]] = {}
    for each in seen.items(NETWORK_POLICIES):
        if not values.mapping(each, "spec", "podSelector"):  # of all pods
            types = {kind for kind in values.sequence(each, "spec", "policyTypes") if isinstance(kind, str)}
            kept.setdefault(values.namespace(each), set()).update(types or {"Ingress"})
    open_ = {namespace: sorted({"Ingress", "Egress"} - kept.get(namespace, set())) for namespace in seen.gpu_namespaces}
    lacking = [f"{namespace} ({', '.join(kinds)})" for namespace, kinds in open_.items() if kinds]
    if lacking:
        return failed(f"no NetworkPolicy of all pods restricts: {values.some(lacking)}")
    return passed(f"ingress and egress are restricted in all {len(seen.gpu_namespaces)} namespaces with GPU work")


SECURITY.by_hand(
    "udev",
    "device permissions by udev rules on hosts",
    "on each GPU node: ls -l /dev/nvidia*; keep them from users by NVreg_DeviceFileMode, or by udev rules",
    f"{_BY_HAND}: it is on the hosts",
)


SECURITY.by_hand(
    "driver-updates",
    "driver updates validated in staging",
    "update one node of a pool of its own first, and run: fairlead smoke NODE",
    f"{_BY_HAND}: it is a way of working",
)


@SECURITY.item(
    "admission control of requests = limits, tolerations and affinity",
    "kubectl apply -f requests-equal-limits.yaml, gpu-tolerations.yaml and gpu-node-affinity.yaml of manifests/policies (docs/webhook.md)",
    TENANCY_POLICIES,
)
def admission(seen: Seen) -> Answer:
    enforced = [each for each in seen.items(TENANCY_POLICIES) if values.text(each, "spec", "mode") in {"", "Enforce"}]
    wanted = {
        "requests = limits": any(values.text(each, "spec", "resourceRequests") == "EqualLimits" for each in enforced),
        "tolerations": any(values.mapping(each, "spec", "tolerations") for each in enforced),
        "affinity": any(values.mapping(each, "spec", "nodeAffinity") for each in enforced),
    }
    missing = [rule for rule, there in wanted.items() if not there]
    if not missing:
        return passed(f"TenancyPolicies: {values.some(map(values.name, enforced))}")
    others = [group for group in ("kyverno.io", "templates.gatekeeper.sh") if seen.serves(group)]
    if others:
        return unknown(f"no TenancyPolicy enforces {', '.join(missing)}; {values.some(others)} may, and is not read")
    return failed(f"no TenancyPolicy enforces {', '.join(missing)}")


@SECURITY.item(
    "MIG where tenants need hardware isolation",
    "isolation: Hardware in a TenancyPolicy of these namespaces (manifests/policies/production-isolation.yaml)",
    TENANCY_POLICIES,
)
def mig_isolation(seen: Seen) -> Answer:
    found = [
        values.name(each)
        for each in seen.items(TENANCY_POLICIES)
        if values.text(each, "spec", "isolation") == "Hardware"
    ]
    if found:
        return passed(f"TenancyPolicies with isolation: Hardware: {values.some(found)}")
    return unknown("no TenancyPolicy has isolation: Hardware; whether a tenant needs it, no API shows")


STORAGE = Group("storage")


@STORAGE.item(
    "shared PersistentVolumeClaims for datasets",
    "a PersistentVolumeClaim with accessModes ReadOnlyMany or ReadWriteMany in the namespace",
    PERSISTENT_VOLUME_CLAIMS,
    given=namespaces,
)
def shared_volumes(seen: Seen) -> Answer:
    found = [
        values.key(each)
        for each in seen.items(PERSISTENT_VOLUME_CLAIMS)
        if values.namespace(each) in seen.gpu_namespaces
        and values.text(each, "status", "phase") == "Bound"
        and any(mode in values.sequence(each, "spec", "accessModes") for mode in sorted(_SHARED))
    ]
    if not found:
        return failed("no bound PersistentVolumeClaim of many readers in a namespace with GPU work")
    return passed(f"shared: {values.some(found)}")


@STORAGE.item(
    "object storage for checkpoints and models",
    "write checkpoints to S3, GCS or the like, by its API or by a CSI driver",
)
def object_storage(seen: Seen) -> Answer:
    if seen.serves("objectstorage.k8s.io"):
        return passed("objectstorage.k8s.io is served")
    if gap := seen.gap(CSI_DRIVERS):
        return unknown(gap)
    found = [
        values.name(each)
        for each in seen.items(CSI_DRIVERS)
        if values.name(each).startswith(_OBJECT_STORES) or ".s3." in values.name(each)
    ]
    if found:
        return passed(f"CSI drivers of object storage: {values.some(found)}")
    return unknown("no CSI driver of object storage; what programs reach by its own API is not visible")


STORAGE.by_hand(
    "storage-bandwidth",
    "over 10 Gbit/s between object storage and GPU nodes",
    "measure on a GPU node, for example: rclone copy --progress of a file of 100 GB, or s5cmd cp",
    f"{_BY_HAND}: bandwidth is measured",
)


STORAGE.by_hand(
    "streaming",
    "streaming data loaders",
    "read shards while training, with WebDataset, MosaicML Streaming or tf.data",
    f"{_BY_HAND}: it is in the training code",
)


MLOPS = Group("mlops")


@MLOPS.item(
    "Kubeflow Pipelines or Argo Workflows",
    "install one of them; their pods take claims or nvidia.com/gpu limits (docs/migration.md)",
)
def pipelines(seen: Seen) -> Answer:
    return _installed(seen, {"Kubeflow Pipelines": "pipelines.kubeflow.org", "Argo Workflows": "workflows.argoproj.io"})


@MLOPS.item("Tekton, if you use GitOps", "install Tekton, if you build images in the cluster")
def tekton(seen: Seen) -> Answer:
    return _installed(seen, {"Tekton": "tekton.dev"}, only="with GitOps, which no API shows")


@MLOPS.item("KServe or Seldon", "install one of them")
def serving(seen: Seen) -> Answer:
    return _installed(seen, {"KServe": "serving.kserve.io", "Seldon": "machinelearning.seldon.io"})


@MLOPS.item("Argo CD, if you use GitOps", "install Argo CD or Flux")
def argo_cd(seen: Seen) -> Answer:
    return _installed(
        seen,
        {"Argo CD": "applications.argoproj.io", "Flux": "kustomize.toolkit.fluxcd.io"},
        only="with GitOps, which no API shows",
    )


def _installed(seen: Seen, systems: dict[str, str], *, only: str = "") -> Answer:
    """`systems` is name → API group, or kind with its group. `only` is when the item is needed at all."""
    if seen.groups is None:
        return unknown(seen.groups_gap)
    found = [name for name, api in systems.items() if api in seen.groups or api in seen.kinds]
    if found:
        return passed(f"{' and '.join(found)} is installed")
    missing = f"{' and '.join(systems)} {'is' if len(systems) == 1 else 'are'} not installed"
    return unknown(f"{missing}; it is needed {only}") if only else failed(missing)


@MLOPS.item(
    "checkpointing in training code",
    'save work before the end of its grace, and say so: fairlead.dev/checkpoint-grace: "5m", fairlead.dev/checkpointed-at (docs/moves.md)',
    PODS,
    GANGS,
)
def checkpoints(seen: Seen) -> Answer:
    large = {
        (values.namespace(each), values.name(each))
        for each in seen.items(GANGS)
        if values.integer(each, "spec", "size") > 1 and values.text(each, "status", "phase") == "Running"
    }
    if not large:
        return unknown("no gang of several pods runs now")
    saving = {
        (values.namespace(pod), str(values.annotations_of(pod).get(names.GANG)))
        for pod in seen.items(PODS)
        if any(key in values.annotations_of(pod) for key in SAVES)
    }
    without = ["/".join(key) for key in large - saving]
    if without:
        return failed(
            f"{len(without)} of {len(large)} running gangs do not say that they save their work: {values.some(without)}"
        )
    return passed(f"all {len(large)} running gangs of several pods say that they save their work")


VALIDATION = Group("validation")


VALIDATION.by_hand(
    "smoke", "a smoke test of the GPUs", "fairlead smoke NODE, for each GPU node", "nothing is kept of a test; run it"
)


VALIDATION.by_hand(
    "all-reduce",
    "NCCL's all-reduce at the expected bandwidth",
    "fairlead smoke NODE --together --image IMAGE-WITH-NCCL-TESTS",
    "nothing is kept of a test; run it",
)


@VALIDATION.item(
    "a training job on one node and on several",
    "kubectl apply -f examples/02-indexed-job, then one whose gang needs more GPUs than a node has",
    GANGS,
)
def training(seen: Seen) -> Answer:
    done = [each for each in seen.items(GANGS) if values.text(each, "status", "phase") in {"Running", "Finished"}]
    one = any(len(values.sequence(each, "status", "nodes")) == 1 for each in done)
    several = any(len(values.sequence(each, "status", "nodes")) > 1 for each in done)
    if one and several:
        return passed("gangs on one node and on several run, or have finished")
    missing = (
        "neither on one node nor on several"
        if not one and not several
        else "on one node only"
        if one
        else "on several nodes only"
    )
    return unknown(f"gangs that run or have finished now: {missing}; a Gang goes with its last pod")


VALIDATION.by_hand(
    "load-test",
    "a load test of inference, with its p99",
    "run one against the service, for example with vllm bench serve or k6, and write down its p99",
    "nothing is kept of a test; run it",
)


VALIDATION.by_hand(
    "interruption",
    "a spot interruption from which training resumes",
    "taint a node as its provider would (docs/moves.md), and see that the gang resumes from its checkpoint",
    "nothing is kept of a test; run it",
)


VALIDATION.by_hand(
    "scale-up",
    "scaling from 0 to N nodes in under 5 minutes",
    "scale an empty pool by a job that needs it, and take the time until its gang runs: kubectl get gang -w",
    "nothing is kept of a test; run it",
)
