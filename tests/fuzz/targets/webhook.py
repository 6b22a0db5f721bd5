"""AdmissionReviews as an apiserver may send them: decoded, looked up, mutated, patched, validated and answered.

Beyond exceptions: a request is not changed by judging it, an answer is JSON of the review's uid, a patch applies, and a second pass
over what was patched changes nothing.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec

from fairlead import cel
from fairlead.api import names
from fairlead.api.foreign import METADATA_KEYS
from fairlead.api.object_names import is_dns_subdomain
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.offline import RESOURCES
from fairlead.webhook.review.envelope import API_VERSION, BadReviewError, OversizedReviewError, Review, decode, encode
from fairlead.webhook.review.facts import Facts, GangMember, needs
from fairlead.webhook.review.verdict import apply_patch
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.target import Target
from tests.support.webhook import CLASSES, claim_spec, facts

Json = dict[str, Any]

_CONTAINER: Json = {
    "name": "main", "image": "x", "restartPolicy": "Always", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    "resources": {"limits": {names.LEGACY_GPU: 2, "cpu": "1"}, "requests": {"memory": "1Gi"}, "claims": [{"name": "gpu", "request": "r"}]},
    "securityContext": {"privileged": False, "capabilities": {"add": ["NET_ADMIN"]}}, "volumeMounts": [{"name": "v", "mountPath": "/x"}],
}  # fmt: skip
_POD_SPEC: Json = {
    "containers": [_CONTAINER], "initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "h100"}, {"name": "s", "resourceClaimName": "shared"}],
    "schedulingGates": [{"name": names.ADMISSION_GATE}], "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "nodeName": "",
    "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}],
    }},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}], "schedulerName": "default-scheduler", "priorityClassName": "p", "hostPID": False,
    "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}, {"name": "w", "emptyDir": {}}], "schedulingGroup": {"podGroupName": "llm"}, "hostNetwork": False,
}  # fmt: skip
_NOTES = {
    names.GANG: "llm",
    names.GANG_SIZE: "8",
    names.QUEUE: "team",
    names.TOPOLOGY: "required:rack",
    names.MIN_RUNTIME: "30m",
    names.CHECKPOINT_GRACE: "90s",
}
_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
_META: Json = {
    "name": "p",
    "generateName": "p-",
    "namespace": "ml",
    "annotations": _NOTES,
    "labels": {"a": "b"},
    "ownerReferences": [_OWNER],
}
_TEMPLATE: Json = {"metadata": {"annotations": _NOTES, "labels": {}}, "spec": _POD_SPEC}
_SMALL: Json = {
    "metadata": {},
    "spec": {"containers": [{"name": "a", "resources": {"limits": {names.LEGACY_GPU: "1"}}}]},
}
_SELECTOR = {"cel": {"expression": f"device.attributes['{names.DRIVER}'].type == 'gpu'"}}
_REQUEST: Json = {
    "name": "gpu",
    "exactly": {
        "deviceClassName": names.GPU_CLASS,
        "selectors": [_SELECTOR],
        "count": 2,
        "allocationMode": "ExactCount",
        "adminAccess": False,
        "tolerations": [{"key": "a"}],
    },
}
_CONFIG: Json = {
    "requests": ["gpu"],
    "opaque": {
        "driver": names.DRIVER,
        "parameters": {
            "apiVersion": names.CONFIG_API_VERSION,
            "kind": "GpuConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}},
        },
    },
}
_CLAIM: Json = {"devices": {
    "requests": [_REQUEST, {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": names.MIG_CLASS, "selectors": [_SELECTOR]}]}],
    "constraints": [{"requests": ["gpu"], "matchAttribute": f"{names.DRIVER}/pcieRoot"}], "config": [_CONFIG],
}}  # fmt: skip
_SELECTING = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "env", "operator": "In", "values": ["x"]}]}
_POLICY: Json = {
    "namespaceSelector": _SELECTING, "deviceBypass": "Reject", "exemptions": {"users": ["admin"], "groups": ["g"]}, "maxMinRuntime": "1h",
    "allowedClasses": [names.GPU_CLASS], "requireQueue": True, "celRules": [{"expression": "object.spec.x == 1", "message": "no"}],
    "hostAccess": {"hostPaths": [{"pathPrefix": "/data", "readOnly": True}], "capabilities": ["SYS_ADMIN"]}, "tolerations": {"allowed": [{"key": "a", "operator": "Exists"}]},
}  # fmt: skip
_SPECS: dict[str, Json] = {
    "Pod": _POD_SPEC,
    "Job": {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "suspend": False, "backoffLimit": 0, "template": _TEMPLATE, "podReplacementPolicy": "Failed"},
    "CronJob": {"schedule": "* * * * *", "jobTemplate": {"metadata": {}, "spec": {"parallelism": 2, "template": _SMALL}}},
    "JobSet": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"metadata": {}, "spec": {"parallelism": 2, "template": _SMALL}}}]},
    "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": _SMALL, "workerTemplate": _SMALL}},
    "PyTorchJob": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _SMALL}, "Worker": {"replicas": 3, "template": _SMALL}}},
    "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": _SMALL}, "Worker": {"replicas": 3, "template": _SMALL}}},
    "TrainJob": {"trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {names.LEGACY_GPU: 1}}}, "suspend": False, "podTemplateOverrides": [{"spec": {"nodeSelector": {}}}]},
    "RayCluster": {"headGroupSpec": {"template": _SMALL}, "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 4, "template": _SMALL}]},
    "RayJob": {"rayClusterSpec": {"headGroupSpec": {"template": _SMALL}, "workerGroupSpecs": [{"replicas": 1, "template": _SMALL}]}, "submitterPodTemplate": _SMALL},
    "ResourceClaim": _CLAIM,
    "ResourceClaimTemplate": {"metadata": {}, "spec": _CLAIM},
    "DeviceClass": {"selectors": [_SELECTOR], "config": [_CONFIG], "extendedResourceName": "example.com/gpu"},
    "Queue": {"parent": "root", "weight": 2, "priority": 1, "namespaceSelector": _SELECTING, "flavors": [{"flavor": "h100", "deserved": "8", "limit": 16, "borrowing": "Unlimited"}], "minRuntime": "10m", "maxMinRuntime": "1h", "disruptionBudget": {"evictions": 1, "window": "1h"}},
    "Flavor": {"selector": "device.driver == 'gpu.fairlead.dev'", "measure": "Capacity", "capacity": f"{names.DRIVER}/memory"},
    "TenancyPolicy": _POLICY,
    "Namespace": {"finalizers": ["kubernetes"]},
}  # fmt: skip
_VERSIONS = {"Queue": names.API_VERSION, "Flavor": names.API_VERSION, "TenancyPolicy": names.API_VERSION}
WORDS = (
    names.GANG, names.GANG_SIZE, names.QUEUE, names.TOPOLOGY, names.SUBGROUP, names.SUBGROUP_SIZE, names.SUBGROUP_TOPOLOGY, names.MIN_RUNTIME, names.CHECKPOINT_GRACE, names.CLAIM_SOURCES, names.CLAIM_NAMES,
    names.LEGACY_GPU, "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.product", names.GPU_CLASS, names.MIG_CLASS, names.ADMISSION_GATE, names.RELEASED_AT,
    names.CONFIG_API_VERSION, "MigDeviceConfig", "MPS", "h100", "nic", "shared", "llm", "team", "required:rack", "In", "NotIn", "Exists", "DoesNotExist", "UPDATE",
    "CREATE", "DELETE", "CONNECT", "ephemeralcontainers", "status", "system:admin", "generated", "named", '{"claims":{"gpu":{"claim":"p-gpu-x","template":"h100","uid":"u"}},"hmac":""}',
    "volcano", "device.attributes['a'].b == 1", "object.metadata.name", "All", *RESOURCES, *dict.fromkeys(word.key for word in METADATA_KEYS),
)  # fmt: skip


def review_of(kind: str, object_: Any, **more: Any) -> Json:
    group, resource = RESOURCES[kind]
    request = {
        "uid": "11111111-2222-3333-4444-555555555555", "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource}, "subResource": "", "requestKind": None, "name": "p", "namespace": "ml",
        "operation": "CREATE", "userInfo": {"username": "alice", "uid": "", "groups": ["system:authenticated"], "extra": None},
        "object": object_, "oldObject": None, "dryRun": False, "options": {"kind": "CreateOptions"},
    } | more  # fmt: skip
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}


def _seeds() -> list[bytes]:
    found: list[Json] = []
    for kind, spec in _SPECS.items():
        group = RESOURCES[kind][0]
        object_ = {
            "apiVersion": _VERSIONS.get(kind, f"{group}/v1" if group else "v1"),
            "kind": kind,
            "metadata": _META,
            "spec": spec,
        }
        found.append(review_of(kind, object_))
        if kind in {"Pod", "Job", "ResourceClaim", "Queue", "TenancyPolicy"}:
            found.append(review_of(kind, object_, operation="UPDATE", oldObject=object_))
    found.append(review_of("Pod", {"kind": "Pod", "metadata": _META, "spec": _SMALL["spec"]}))
    debug = {"kind": "Pod", "metadata": _META, "spec": _POD_SPEC | {"ephemeralContainers": [_CONTAINER]}}
    found.append(
        review_of(
            "Pod", debug, operation="UPDATE", subResource="ephemeralcontainers", oldObject=debug | {"spec": _POD_SPEC}
        )
    )
    found.append(review_of("Pod", None, operation="DELETE", oldObject=debug))
    return [msgspec.json.encode(each) for each in found]


def known() -> list[Facts]:
    """A cluster without policies, and one whose policies refuse much."""
    policy = TenancyPolicy.stored(
        {
            "metadata": {"name": "strict"},
            "spec": {
                "deviceBypass": "Reject",
                "celRules": [{"expression": "object.metadata.name != 'x'", "message": "no"}],
            },
        }
    )
    queue = Queue.stored({"metadata": {"name": "team"}, "spec": {}})
    common: Json = {
        "classes": CLASSES,
        "claims": {("ml", "shared"): claim_spec()},
        "gangs": {("ml", "llm"): (GangMember(name="other", size=8),)},
        "queues": {"team": queue},
    }
    return [facts(**common), facts(**common, policies=(policy,), signing_key=b"k")]


def reviews(scratch: Path) -> Target:
    clusters = known()

    def run(data: bytes) -> None:
        try:
            review = decode(data)
        except OversizedReviewError as error:
            _refused(error)
            raise
        try:
            needs(review)
        except MalformedError:
            pass
        before = copy.deepcopy((review.object, review.old))
        for cluster in clusters:
            _judge(review, cluster)
        assert (review.object, review.old) == before, "judging a request changes it"

    return Target(
        name="admission-reviews",
        run=run,
        seeds=tuple(_seeds()),
        mutate=mixed((8, json_mutations(WORDS)), (1, byte_mutations(tuple(word.encode() for word in WORDS)))),
        allowed=(BadReviewError,),
        traced=("/fairlead/webhook/", "/fairlead/api/"),
        bytes_max=32 * 1024,
    )


def _refused(error: OversizedReviewError) -> None:
    assert msgspec.json.decode(encode(error.uid, error.verdict))["response"]["allowed"] is False


def _judge(review: Review, cluster: Facts) -> None:
    with cel.allowance(review.namespace, tokens=30_000):
        first = dispatch.mutate(review, cluster)
        _answered(review, first)
        if not first.allowed:
            return
        if first.patch:
            stored = apply_patch(review.object or {}, first.patch)
            review = msgspec.structs.replace(review, object=stored)
            again = dispatch.mutate(review, cluster)
            if not _storable(stored, review):
                return
            assert (again.allowed, again.patch) == (True, ()), f"a second pass: {again.message} {again.patch}"
        _answered(review, dispatch.validate(review, cluster))


def _storable(stored: Json, review: Review) -> bool:
    """Whether the apiserver takes such a metadata after admission."""
    metadata = stored.get("metadata") or {}
    names = (metadata.get("name") or "x" if isinstance(metadata, dict) else "", review.name or "x")
    return all(is_dns_subdomain(str(name)) for name in names)


def _answered(review: Review, verdict: Any) -> None:
    answer = msgspec.json.decode(encode(review.uid, verdict))["response"]
    assert answer["uid"] == review.uid
    assert verdict.allowed or verdict.message, "a refusal says why"
