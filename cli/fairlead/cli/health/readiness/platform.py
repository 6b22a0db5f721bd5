"""Security, storage and network, MLOps, validation: what tenants may, what data comes from, what runs workflows, what was tried."""

from __future__ import annotations

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.readiness.kinds import CSI_DRIVERS
from fairlead.cli.health.readiness.model import Answer, Group, Item, failed, never, passed, unknown
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


def pod_security(seen: Seen) -> Answer:
    if gap := seen.gap(NAMESPACES):
        return unknown(gap)
    if answer := namespaces(seen):
        return answer
    levels = {values.name(each): values.labels_of(each).get(ENFORCE) for each in seen.items(NAMESPACES)}
    open_ = [
        f"{each} ({levels.get(each) or 'no level'})" for each in seen.gpu_namespaces if levels.get(each) != "restricted"
    ]
    if open_:
        return failed(
            f"namespaces with GPU work that do not enforce restricted: {values.some(map(values.clean, open_))}"
        )
    return passed(f"restricted is enforced in all {len(seen.gpu_namespaces)} namespaces with GPU work")


def network_policies(seen: Seen) -> Answer:
    if gap := seen.gap(NETWORK_POLICIES):
        return unknown(gap)
    if answer := namespaces(seen):
        return answer
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


def admission(seen: Seen) -> Answer:
    if gap := seen.gap(TENANCY_POLICIES):
        return unknown(gap)
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


def isolation(seen: Seen) -> Answer:
    if gap := seen.gap(TENANCY_POLICIES):
        return unknown(gap)
    found = [
        values.name(each)
        for each in seen.items(TENANCY_POLICIES)
        if values.text(each, "spec", "isolation") == "Hardware"
    ]
    if found:
        return passed(f"TenancyPolicies with isolation: Hardware: {values.some(found)}")
    return unknown("no TenancyPolicy has isolation: Hardware; whether a tenant needs it, no API shows")


def shared_volumes(seen: Seen) -> Answer:
    if gap := seen.gap(PERSISTENT_VOLUME_CLAIMS):
        return unknown(gap)
    if answer := namespaces(seen):
        return answer
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


def pipelines(seen: Seen) -> Answer:
    return _installed(seen, {"Kubeflow Pipelines": "pipelines.kubeflow.org", "Argo Workflows": "workflows.argoproj.io"})


def tekton(seen: Seen) -> Answer:
    return _installed(seen, {"Tekton": "tekton.dev"}, only="with GitOps, which no API shows")


def serving(seen: Seen) -> Answer:
    return _installed(seen, {"KServe": "serving.kserve.io", "Seldon": "machinelearning.seldon.io"})


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


def checkpoints(seen: Seen) -> Answer:
    if gap := seen.gap(PODS, GANGS):
        return unknown(gap)
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


def training(seen: Seen) -> Answer:
    if gap := seen.gap(GANGS):
        return unknown(gap)
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


SECURITY = Group(
    key="security",
    title="Security",
    items=(
        Item(
            key="pod-security",
            title="Pod Security restricted on GPU namespaces",
            fix=f"kubectl label namespace NAMESPACE {ENFORCE}=restricted, or fairlead tenant create NAME (docs/tenants.md)",
            check=pod_security,
        ),
        Item(
            key="network-policies",
            title="NetworkPolicies isolate tenants and restrict egress",
            fix="fairlead tenant create NAME makes them (docs/tenants.md)",
            check=network_policies,
        ),
        Item(
            key="udev",
            title="device permissions by udev rules on hosts",
            fix="on each GPU node: ls -l /dev/nvidia*; keep them from users by NVreg_DeviceFileMode, or by udev rules",
            check=never(f"{_BY_HAND}: it is on the hosts"),
        ),
        Item(
            key="driver-updates",
            title="driver updates validated in staging",
            fix="update one node of a pool of its own first, and run: fairlead smoke NODE",
            check=never(f"{_BY_HAND}: it is a way of working"),
        ),
        Item(
            key="admission",
            title="admission control of requests = limits, tolerations and affinity",
            fix="kubectl apply -f requests-equal-limits.yaml, gpu-tolerations.yaml and gpu-node-affinity.yaml of manifests/policies (docs/webhook.md)",
            check=admission,
        ),
        Item(
            key="mig-isolation",
            title="MIG where tenants need hardware isolation",
            fix="isolation: Hardware in a TenancyPolicy of these namespaces (manifests/policies/production-isolation.yaml)",
            check=isolation,
        ),
    ),
)
STORAGE = Group(
    key="storage",
    title="Storage and network",
    items=(
        Item(
            key="shared-volumes",
            title="shared PersistentVolumeClaims for datasets",
            fix="a PersistentVolumeClaim with accessModes ReadOnlyMany or ReadWriteMany in the namespace",
            check=shared_volumes,
        ),
        Item(
            key="object-storage",
            title="object storage for checkpoints and models",
            fix="write checkpoints to S3, GCS or the like, by its API or by a CSI driver",
            check=object_storage,
        ),
        Item(
            key="storage-bandwidth",
            title="over 10 Gbit/s between object storage and GPU nodes",
            fix="measure on a GPU node, for example: rclone copy --progress of a file of 100 GB, or s5cmd cp",
            check=never(f"{_BY_HAND}: bandwidth is measured"),
        ),
        Item(
            key="streaming",
            title="streaming data loaders",
            fix="read shards while training, with WebDataset, MosaicML Streaming or tf.data",
            check=never(f"{_BY_HAND}: it is in the training code"),
        ),
    ),
)
MLOPS = Group(
    key="mlops",
    title="MLOps",
    items=(
        Item(
            key="pipelines",
            title="Kubeflow Pipelines or Argo Workflows",
            fix="install one of them; their pods take claims or nvidia.com/gpu limits (docs/migration.md)",
            check=pipelines,
        ),
        Item(
            key="tekton",
            title="Tekton, if you use GitOps",
            fix="install Tekton, if you build images in the cluster",
            check=tekton,
        ),
        Item(key="serving", title="KServe or Seldon", fix="install one of them", check=serving),
        Item(key="argo-cd", title="Argo CD, if you use GitOps", fix="install Argo CD or Flux", check=argo_cd),
        Item(
            key="checkpoints",
            title="checkpointing in training code",
            fix='save work before the end of its grace, and say so: fairlead.dev/checkpoint-grace: "5m", fairlead.dev/checkpointed-at (docs/moves.md)',
            check=checkpoints,
        ),
    ),
)
VALIDATION = Group(
    key="validation",
    title="Validation",
    items=(
        Item(
            key="smoke",
            title="a smoke test of the GPUs",
            fix="fairlead smoke NODE, for each GPU node",
            check=never("nothing is kept of a test; run it"),
        ),
        Item(
            key="all-reduce",
            title="NCCL's all-reduce at the expected bandwidth",
            fix="fairlead smoke NODE --together --image IMAGE-WITH-NCCL-TESTS",
            check=never("nothing is kept of a test; run it"),
        ),
        Item(
            key="training",
            title="a training job on one node and on several",
            fix="kubectl apply -f examples/02-indexed-job, then one whose gang needs more GPUs than a node has",
            check=training,
        ),
        Item(
            key="load-test",
            title="a load test of inference, with its p99",
            fix="run one against the service, for example with vllm bench serve or k6, and write down its p99",
            check=never("nothing is kept of a test; run it"),
        ),
        Item(
            key="interruption",
            title="a spot interruption from which training resumes",
            fix="taint a node as its provider would (docs/moves.md), and see that the gang resumes from its checkpoint",
            check=never("nothing is kept of a test; run it"),
        ),
        Item(
            key="scale-up",
            title="scaling from 0 to N nodes in under 5 minutes",
            fix="scale an empty pool by a job that needs it, and take the time until its gang runs: kubectl get gang -w",
            check=never("nothing is kept of a test; run it"),
        ),
    ),
)
