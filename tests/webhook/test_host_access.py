"""deviceBypass: Reject plays what a user with `edit` in one namespace can write into a pod to reach the node, and its GPUs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.policy import TenancyPolicy
from fairlead.kube import errors
from fairlead.kube.resources import PODS
from fairlead.sandbox.install.apply import Applier
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import facts, review

Json = dict[str, Any]
RDMA: Json = {
    "capabilities": ["IPC_LOCK"],
    "namespaces": ["Network"],
    "csiDrivers": ["secrets-store.csi.k8s.io"],
    "hostPaths": [{"path": "/data", "readOnly": True}, {"path": "/scratch/", "readOnly": False}],
}


def of(kind: str, object_: Json, **more: Any) -> Review:
    return review({"kind": kind, **object_}, **more)


def policy(access: Json | None = None, **more: Any) -> TenancyPolicy:
    spec = {"deviceBypass": "Reject", **({"hostAccess": access} if access else {}), **more}
    return TenancyPolicy.stored({"metadata": {"name": "no-bypass"}, "spec": spec})


def judged(spec: Json, access: Json | None = None, metadata: Json | None = None, **more: Any) -> Verdict:
    """What becomes of the pod at the validating webhook."""
    body = {
        "metadata": {"name": "p", "namespace": "ml", **(metadata or {})},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    return dispatch.validate(of("Pod", body), facts(policies=(policy(access, **more),)))


def mounting(path: str, *, read_only: bool | None = None) -> Json:
    mount = {"name": "v", "mountPath": "/m", **({} if read_only is None else {"readOnly": read_only})}
    return {
        "containers": [{"name": "c", "image": "i", "volumeMounts": [mount]}],
        "volumes": [{"name": "v", "hostPath": {"path": path}}],
    }


def container(**fields: Any) -> Json:
    return {"containers": [{"name": "c", "image": "i", **fields}]}


def secured(**fields: Any) -> Json:
    return container(securityContext=fields)


@pytest.mark.parametrize(
    ("path", "read_only"),
    [
        ("/data", True),
        ("/data/", True),
        ("/data/sets/a", True),
        ("//data/./sets", True),
        ("/scratch", None),
        ("/scratch/", False),
    ],
)
def test_what_the_policy_lists_is_allowed(path: str, read_only: bool | None) -> None:
    assert judged(mounting(path, read_only=read_only), RDMA).allowed


@pytest.mark.parametrize(
    ("path", "read_only", "field"),
    [
        ("/database", True, "spec.volumes[0].hostPath.path"),
        ("/dat", True, "spec.volumes[0].hostPath.path"),
        ("/data/../etc", True, "spec.volumes[0].hostPath.path"),
        ("/Data", True, "spec.volumes[0].hostPath.path"),
        ("/scratch/link", True, "spec.volumes[0].hostPath.path"),  # a pod may have made it a link to /
        ("/scratch/..", True, "spec.volumes[0].hostPath.path"),
        ("/data", None, "spec.containers[0].volumeMounts[0].readOnly"),
        ("/data/a", False, "spec.containers[0].volumeMounts[0].readOnly"),
    ],
)
def test_what_only_looks_like_it_is_refused(path: str, read_only: bool | None, field: str) -> None:
    verdict = judged(mounting(path, read_only=read_only), RDMA)
    assert not verdict.allowed
    assert field in verdict.message
    assert "spec.hostAccess.hostPaths of the policy" in verdict.message


REFUSED: dict[str, tuple[Json, str]] = {
    "privileged": (secured(privileged=True), "spec.containers[0].securityContext.privileged"),
    "ptrace": (secured(capabilities={"add": ["SYS_PTRACE"]}), "capabilities.add: SYS_PTRACE"),
    "prefixed": (secured(capabilities={"add": ["CAP_SYS_ADMIN"]}), "capabilities.add: CAP_SYS_ADMIN"),
    "lower case": (secured(capabilities={"add": ["sys_admin"]}), "capabilities.add: sys_admin"),
    "all": (secured(capabilities={"add": ["ALL"]}), "capabilities.add: ALL"),
    "unknown": (secured(capabilities={"add": ["NEW_ONE"]}), "capabilities.add: NEW_ONE"),
    "bpf": (secured(capabilities={"add": ["CHOWN", "BPF"]}), "capabilities.add: BPF"),
    "host pid": ({"hostPID": True}, "spec.hostPID: true"),
    "host ipc": ({"hostIPC": True}, "spec.hostIPC: true"),
    "host network": ({"hostNetwork": True}, "spec.hostNetwork: true"),
    "unmasked": (secured(procMount="Unmasked"), "procMount: 'Unmasked'"),
    "seccomp": (secured(seccompProfile={"type": "Unconfined"}), "spec.containers[0].securityContext.seccompProfile.type"),
    "seccomp of the pod": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "spec.securityContext.seccompProfile.type"),
    "apparmor": (secured(appArmorProfile={"type": "Unconfined"}), "appArmorProfile.type"),
    "selinux": (secured(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions.type: 'spc_t'"),
    "selinux role": (secured(seLinuxOptions={"role": "sysadm_r"}), "seLinuxOptions.role"),
    "windows": ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "windowsOptions.hostProcess"),
    "init container": ({"initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": True}}]}, "spec.initContainers[0]"),
    "flex": ({"volumes": [{"name": "v", "flexVolume": {"driver": "x/y"}}]}, "spec.volumes[0].flexVolume"),
    "git": ({"volumes": [{"name": "v", "gitRepo": {"repository": "r"}}]}, "spec.volumes[0].gitRepo"),
    "csi": ({"volumes": [{"name": "v", "csi": {"driver": "hostpath.csi.k8s.io"}}]}, "spec.volumes[0].csi.driver"),
    "plugin": (container(resources={"limits": {"nvidia.com/gpu-slice": "1"}}), "resources.limits[nvidia.com/gpu-slice]"),
    "variable": (container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]), "env[1]"),
    "variable from elsewhere": (container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {}}}]), "env[0]"),
    "runtime class": ({"runtimeClassName": "nvidia-cdi"}, "spec.runtimeClassName"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_goes_beyond_the_baseline_is_refused_by_its_field(case: str) -> None:
    spec, field = REFUSED[case]
    verdict = judged(spec)
    assert not verdict.allowed
    assert field in verdict.message


@pytest.mark.parametrize(
    "key",
    ["cdi.k8s.io/x", "io.kubernetes.cri-o.Devices", "devices.nri.io/container.c",
     "container.apparmor.security.beta.kubernetes.io/c"],
)  # fmt: skip
def test_annotations_that_do_the_same_are_refused(key: str) -> None:
    verdict = judged({}, metadata={"annotations": {key: "unconfined"}})
    assert not verdict.allowed
    assert f"metadata.annotations[{key}]" in verdict.message


def test_a_variable_that_a_config_map_may_set_is_overridden() -> None:
    body = {
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": container(envFrom=[{"configMapRef": {"name": "gpus"}}]),
    }
    verdict = dispatch.mutate(of("Pod", body), facts(policies=(policy(),)))
    assert [operation["value"] for operation in verdict.patch] == [
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    ]


def test_a_debug_container_cannot_write_to_what_the_pod_may_read() -> None:
    pod = {"metadata": {"name": "p", "namespace": "ml"}, "spec": mounting("/data", read_only=True)}
    debug = {"name": "d", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/m"}]}
    new = pod | {"spec": {**pod["spec"], "ephemeralContainers": [debug]}}
    asked = of("Pod", new, operation="UPDATE", subresource="ephemeralcontainers", old=pod)
    verdict = dispatch.validate(asked, facts(policies=(policy(RDMA),)))
    assert not verdict.allowed
    assert "spec.ephemeralContainers[0].volumeMounts[0].readOnly" in verdict.message


async def test_a_tenant_creates_no_pod_that_reaches_the_node(cluster: Any) -> None:
    rules = {"deviceBypass": "Reject", "hostAccess": RDMA}
    kind = {"apiVersion": names.API_VERSION, "kind": "TenancyPolicy", "metadata": {"name": "no-bypass"}, "spec": rules}
    await Applier(cluster.admin).apply([kind])
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}}
    async with cluster.webhook():
        for path in ("/etc/kubernetes/manifests", "/database", "/data//../etc/cron.d", "/scratch/link"):
            with pytest.raises(errors.ApiError, match="hostPath"):
                await cluster.alice.create(PODS, body | {"spec": mounting(path, read_only=True)})
        for case in ("ptrace", "host pid", "unmasked", "init container", "csi", "plugin", "variable"):
            spec, field = REFUSED[case]
            with pytest.raises(errors.ApiError, match=re.escape(field)):
                await cluster.alice.create(PODS, body | {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}})
        await cluster.alice.create(PODS, body | {"spec": mounting("/data/sets", read_only=True)})


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({"hostPaths": [{"path": "/data/../etc"}]}, "is not in its shortest form: write /etc"),
        ({"hostPaths": [{"path": "//data"}]}, "is not in its shortest form: write /data"),
        ({"hostPaths": [{"path": "/"}]}, "path"),
        ({"hostPaths": [{"path": "data"}]}, "path"),
        ({"hostPaths": [{"path": "/data"}, {"path": "/data/in", "readOnly": False}]}, "cannot be allowed beside it"),
        ({"hostPaths": [{"path": "/data", "readOnly": False}, {"path": "/data/out"}]}, "cannot be allowed beside it"),
        ({"capabilities": ["CAP_SYS_PTRACE"]}, "write it as in a container"),
        ({"namespaces": ["User"]}, "namespaces"),
    ],
)
def test_a_policy_that_opens_more_than_it_says_is_refused(access: Json, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        TenancyPolicy.read({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "TenancyPolicy", "metadata": {"name": "p"},
            "spec": {"deviceBypass": "Reject", "hostAccess": access},
        })  # fmt: skip
