"""Ways around the claims to a GPU, denied where a policy says so (`deviceBypass: Reject`).

A privileged container, or one environment variable, reaches devices that the pod's claims do not allocate. Unlike the other
rules this one judges every pod of the namespaces that such a policy selects, whether it asks for devices or not: the webhook
registers itself for them (`registration`), with `Fail` for Enforce.

- privileged containers, and capabilities that amount to it;
- the NVIDIA runtime's own switches: NVIDIA_VISIBLE_DEVICES other than void or none, volume mounts under
  /var/run/nvidia-container-devices, a runtime class of the name nvidia*, CDI by annotation;
- host paths that hold device nodes, the driver's sockets, CDI files, or the runtime's or kubelet's sockets.

An *image* may carry NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's own do: the pod's spec does not show it. So an Enforce policy sets
the variable to void in each container that does not set it; the spec's value goes before the image's and before envFrom. Our
driver's CDI edits set void, too, so a pod with claims is not affected.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import START_CONTAINERS, containers
from fairlead.webhook.policy.policies import Policies, finding, first
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.verdict import Finding

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
HARMLESS = ("void", "none")
CAPABILITIES = frozenset({"ALL", "SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE"})
CDI_ANNOTATION = "cdi.k8s.io/"
DEVICE_LIST = "/var/run/nvidia-container-devices"
HOST_PATHS = (
    "/dev",
    "/proc",
    "/sys",
    "/run/nvidia",
    "/run/nvidia-persistenced",
    "/run/nvidia-fabricmanager",
    "/run/cdi",
    "/etc/cdi",
    "/run/containerd",
    "/run/crio",
    "/run/docker.sock",
    "/var/lib/kubelet",
)
"""Forbidden, with everything below and above them; /var/run counts as /run."""
ALLOWED_PATHS = ("/dev/shm", "/dev/log", "/dev/hugepages", "/dev/infiniband", "/sys/fs/cgroup")
ALL_CONTAINERS = (*START_CONTAINERS, "ephemeralContainers")


def bypass_findings(policies: Policies, pod: Json, path: str = "") -> Iterator[Finding]:
    """Ways around the claims in a pod, or in the pod template at path. Raises MalformedError."""
    judging = [policy for policy in policies if policy.spec.device_bypass == "Reject"]
    if not judging:
        return
    prefix = f"{path}." if path else ""
    for text in first(_bypasses(pod, prefix)):
        for policy in judging:
            yield finding(policy, "deviceBypass", text)


def void_visible_devices(policies: Policies, patch: PatchBuilder, *, before: Json | None = None) -> bool:
    """Set the variable to void where an Enforce policy asks for it and the pod does not set it. Whether anything changed.

    before: the pod before an update, whose containers cannot be changed any more. Raises MalformedError.
    """
    if not any(policy.spec.device_bypass == "Reject" and policy.spec.mode == "Enforce" for policy in policies):
        return False
    changed = False
    spec, old_spec = map_at(patch.patched, "spec"), map_at(before or {}, "spec")
    fixed = [(name, old.get("name")) for name, _, old in containers(old_spec, lists=ALL_CONTAINERS)]
    for list_name, index, container in containers(spec, lists=ALL_CONTAINERS):
        if (list_name, container.get("name")) in fixed or _sets_visible_devices(container):
            continue
        patch.append(("spec", list_name, index, "env"), {"name": VISIBLE, "value": "void"})
        changed = True
    return changed


def _sets_visible_devices(container: Json) -> bool:
    return any(entry.get("name") == VISIBLE for entry in list_at(container, "env", "spec"))


def _bypasses(pod: Json, prefix: str) -> Iterator[str]:
    spec = map_at(pod, "spec", prefix.removesuffix("."))
    where = f"{prefix}spec"
    for list_name, index, container in containers(spec, where, ALL_CONTAINERS):
        yield from _container_bypasses(container, f"{where}.{list_name}[{index}]")
    runtime = text_at(spec, "runtimeClassName", where)
    if runtime.startswith("nvidia"):
        yield f"{where}.runtimeClassName: {runtime!r} adds GPUs by itself; remove it, and ask by a claim"
    for key in strings_at(map_at(pod, "metadata", prefix.removesuffix(".")), "annotations", f"{prefix}metadata"):
        if key.startswith(CDI_ANNOTATION):
            yield f"{prefix}metadata.annotations[{key}]: adds devices by itself; remove it, and ask by a claim"
    for index, volume in enumerate(list_at(spec, "volumes", where)):
        host = text_at(map_at(volume, "hostPath", where), "path", where)
        if host and _forbidden(host):
            yield f"{where}.volumes[{index}].hostPath.path: {host!r} reaches device nodes or their managers; remove the volume"


def _container_bypasses(container: Json, where: str) -> Iterator[str]:
    security = map_at(container, "securityContext", where)
    if security.get("privileged") is True:
        yield f"{where}.securityContext.privileged: a privileged container sees every GPU of its node; remove it"
    added = map_at(security, "capabilities", where).get("add")
    for name in added if isinstance(added, list) else []:
        if str(name).upper().removeprefix("CAP_") in CAPABILITIES:
            yield f"{where}.securityContext.capabilities.add: {name} is as good as privileged; remove it"
    for index, entry in enumerate(list_at(container, "env", where)):
        if entry.get("name") != VISIBLE:
            continue
        value = entry.get("value")
        if value not in HARMLESS:
            shown = repr(value) if value is not None else "a value from elsewhere"
            yield f"{where}.env[{index}]: {VISIBLE} is {shown}; remove it, and ask by a claim"
    for index, mount in enumerate(list_at(container, "volumeMounts", where)):
        path = text_at(mount, "mountPath", where)
        if ("nvidia" in path or ".." in path) and _within(path, DEVICE_LIST):
            yield f"{where}.volumeMounts[{index}].mountPath: {path!r} asks the NVIDIA runtime for a GPU; remove it"


def _forbidden(path: str) -> bool:
    if any(_within(path, allowed) for allowed in ALLOWED_PATHS):
        return False
    return any(_within(path, barred) or _within(barred, path) for barred in HOST_PATHS)


def _within(path: str, directory: str) -> bool:
    path, directory = _plain(path), _plain(directory)
    return path == directory or path.startswith(directory if directory == "/" else f"{directory}/")


def _plain(path: str) -> str:
    plain = posixpath.normpath(f"/{path.lstrip('/')}")
    return plain.removeprefix("/var") if plain == "/var/run" or plain.startswith("/var/run/") else plain
