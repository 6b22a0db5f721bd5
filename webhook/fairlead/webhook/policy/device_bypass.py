"""Ways around the claims to a GPU, denied where a policy says so (`deviceBypass: Reject`).

A container that reaches its node, or one environment variable, reaches devices that the pod's claims do not allocate. Unlike the other
rules this one judges every pod of the namespaces that such a policy selects, whether it asks for devices or not: the webhook
registers itself for them (`registration`), with `Fail` for Enforce. Pods of Deployments and other kinds are judged when they are created.

- what a pod uses of its node, beyond the Pod Security baseline and the policy's `hostAccess`: a list of what is allowed, since whatever writes
  to a node's files, or runs outside of its container, reaches every GPU there: a static pod under /etc/kubernetes/manifests, a program in
  /opt/cni/bin, a job in /etc/cron.d, another process by SYS_PTRACE;
- the NVIDIA runtime's own switches: NVIDIA_VISIBLE_DEVICES other than void or none, volume mounts under
  /var/run/nvidia-container-devices, a runtime class of the name nvidia*, devices by annotation (CDI, NRI, CRI-O);
- GPUs of a device plugin under names that are not translated into claims, such as nvidia.com/gpu-slice (`rename` of its shares).

A host path is compared whole, after `..`, doubled slashes and the last slash are resolved; /var/run counts as /run. The apiserver cannot see
links on the node: whoever can write into an allowed path can make one there, and the next pod's volume would follow it. So below
an allowed path only what is `readOnly` for every pod is allowed, and a path that pods may write to is allowed by itself only.
Not judged: PersistentVolumes, which administrators and their provisioners make, and what leads to no device (sysctls, host ports).
Source: Kubernetes, Pod Security Standards, baseline.

An *image* may carry NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's own do: the pod's spec does not show it. So an Enforce policy sets
the variable to void in each container that does not set it (`defaults`); the spec's value goes before the image's and before envFrom. Our
driver's CDI edits set void, too, so a pod with claims is not affected.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from fairlead.api import legacy, names
from fairlead.api.drivers import serve_nvidia
from fairlead.api.policy import AllowedHostPath, HostAccess, TenancyPolicySpec
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import START_CONTAINERS, containers
from fairlead.webhook.policy.policies import Kind, Policies, Subject, finding, first
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
HARMLESS = ("void", "none")
_DEVICE_ANNOTATIONS = ("cdi.k8s.io/", "devices.nri.io/", "io.kubernetes.cri-o.Devices")
_DEVICE_LIST = "/var/run/nvidia-container-devices"
_PLUGIN_GPUS = (names.LEGACY_GPU, names.LEGACY_MIG_PREFIX)
ALL_CONTAINERS = (*START_CONTAINERS, "ephemeralContainers")


def bypass_findings(policies: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    """Ways around the claims in a pod, a pod template or ephemeral containers that are added. Raises MalformedError.

    Where no managed driver has the GPUs of legacy limits, these go to a device plugin.
    """
    translated, added = serve_nvidia(facts.drivers), it.kind is Kind.EPHEMERAL
    for policy in policies:
        if policy.spec.device_bypass == "Reject":
            for text in first(_bypasses(it.pod, it.where, policy.spec, translated=translated, added=added)):
                yield finding(policy, "deviceBypass", text)


def _bypasses(pod: Json, prefix: str, rules: TenancyPolicySpec, *, translated: bool, added: bool) -> Iterator[str]:
    spec = map_at(pod, "spec", prefix.removesuffix("."))
    where = f"{prefix}spec"
    lists = ("ephemeralContainers",) if added else ALL_CONTAINERS
    read_only = _read_only_volumes(spec, rules.host_access)
    for list_name, index, container in containers(spec, where, lists):
        at = f"{where}.{list_name}[{index}]"
        yield from _container_findings(container, at, read_only, rules.host_access.capabilities)
        yield from _container_bypasses(container, at)
        if rules.legacy_requests != "Ignore":
            yield from _plugin_gpus(container, at, translated=translated)
    if added:
        return
    runtime = text_at(spec, "runtimeClassName", where)
    if runtime.startswith("nvidia"):
        yield f"{where}.runtimeClassName: {runtime!r} adds GPUs by itself; remove it, and ask by a claim"
    for key in strings_at(map_at(pod, "metadata", prefix.removesuffix(".")), "annotations", f"{prefix}metadata"):
        if key.startswith(_DEVICE_ANNOTATIONS):
            yield f"{prefix}metadata.annotations[{key}]: adds devices by itself; remove it, and ask by a claim"
    yield from _pod_findings(pod, prefix, rules.host_access)


def _container_bypasses(container: Json, where: str) -> Iterator[str]:
    for index, entry in enumerate(list_at(container, "env", where)):
        if entry.get("name") != VISIBLE:
            continue
        value = entry.get("value")
        if value not in HARMLESS:
            shown = repr(value) if value is not None else "a value from elsewhere"
            yield f"{where}.env[{index}]: {VISIBLE} is {shown}; remove it, and ask by a claim"
    for index, mount in enumerate(list_at(container, "volumeMounts", where)):
        path = text_at(mount, "mountPath", where)
        if ("nvidia" in path or ".." in path) and _within(_plain_path(path), _plain_path(_DEVICE_LIST)):
            yield f"{where}.volumeMounts[{index}].mountPath: {path!r} asks the NVIDIA runtime for a GPU; remove it"


def _plugin_gpus(container: Json, where: str, *, translated: bool) -> Iterator[str]:
    resources = map_at(container, "resources", where)
    for side in ("limits", "requests"):
        for name, amount in map_at(resources, side, f"{where}.resources").items():
            claimed = translated and legacy.is_legacy(name)
            if name.startswith(_PLUGIN_GPUS) and not claimed and amount not in (0, "0"):
                yield f"{where}.resources.{side}[{name}]: asks a device plugin for a GPU; remove it, and ask by a claim"


_BASELINE_CAPABILITIES = (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
    "SETPCAP", "SETUID", "SYS_CHROOT",
)  # fmt: skip
_PRIVILEGED_CAPABILITIES = frozenset({"ALL", "SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE"})
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_DEVICE_PATHS = (
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
"""With everything below them, these lead to a GPU directly: a message of their own."""
_NAMESPACES = {"hostPID": "PID", "hostIPC": "IPC", "hostNetwork": "Network"}
_CHANGE = "an administrator can allow it by spec.hostAccess.{} of the policy"


def _pod_findings(pod: Json, prefix: str, allowed: HostAccess) -> Iterator[str]:
    """What the fields of a pod that are not its containers' reach. Raises MalformedError."""
    where = f"{prefix}spec"
    spec = map_at(pod, "spec", prefix.removesuffix("."))
    for field, name in _NAMESPACES.items():
        if spec.get(field) and name not in allowed.namespaces:
            yield (
                f"{where}.{field}: {_shown(spec[field])}: the namespaces of the node are not allowed here; remove it, or "
                f"{_CHANGE.format('namespaces')}"
            )
    yield from _profiles(map_at(spec, "securityContext", where), f"{where}.securityContext")
    for index, volume in enumerate(list_at(spec, "volumes", where)):
        yield from _volume(volume, f"{where}.volumes[{index}]", allowed)
    annotations = strings_at(map_at(pod, "metadata", prefix.removesuffix(".")), "annotations", f"{prefix}metadata")
    for key, value in annotations.items():
        if key.startswith(_APPARMOR_ANNOTATION) and not (value == "runtime/default" or value.startswith("localhost/")):
            yield f"{prefix}metadata.annotations[{key}]: {value!r}: only runtime/default and localhost/ are allowed; remove it"


def _read_only_volumes(spec: Json, allowed: HostAccess) -> frozenset[str]:
    """Names of the pod's volumes that may only be read. Raises MalformedError."""
    return frozenset(
        str(volume.get("name"))
        for volume in list_at(spec, "volumes", "spec")
        if (entry := _allowed_by(_host_path(volume, "spec.volumes"), allowed)) is not None and entry.read_only
    )


def _container_findings(
    container: Json, where: str, read_only: frozenset[str], capabilities: Sequence[str]
) -> Iterator[str]:
    """What one container of a pod with these read-only volumes reaches; capabilities: beyond the baseline. Raises MalformedError."""
    security = map_at(container, "securityContext", where)
    if security.get("privileged"):
        yield f"{where}.securityContext.privileged: a privileged container sees every GPU of its node; remove it"
    yield from _profiles(security, f"{where}.securityContext")
    yield from _capabilities(security, f"{where}.securityContext", capabilities)
    mask = security.get("procMount")
    if mask not in (None, "", "Default"):
        yield f"{where}.securityContext.procMount: {mask!r}: only Default is allowed; remove it"
    for index, mount in enumerate(list_at(container, "volumeMounts", where) if read_only else ()):
        if str(mount.get("name")) in read_only and mount.get("readOnly") is not True:
            yield (
                f"{where}.volumeMounts[{index}].readOnly: is not true, and the host path of volume {mount['name']!r} may "
                f"only be read; write readOnly: true, or {_CHANGE.format('hostPaths')}"
            )


def _allowed_by(path: str | None, allowed: HostAccess) -> AllowedHostPath | None:
    """The entry that allows a host path; the one that allows to write, where two do."""
    if path is None:
        return None
    plain = _plain_path(path)
    found = [
        entry
        for entry in allowed.host_paths
        if plain == _plain_path(entry.path) or (entry.read_only and _within(plain, _plain_path(entry.path)))
    ]
    return min(found, key=lambda entry: entry.read_only, default=None)


def _within(path: str, directory: str) -> bool:
    """Whether a plain path is this directory, or below it."""
    return path == directory or path.startswith(directory if directory == "/" else f"{directory}/")


def _plain_path(path: str) -> str:
    plain = posixpath.normpath(f"/{path.lstrip('/')}")
    return plain.removeprefix("/var") if plain == "/var/run" or plain.startswith("/var/run/") else plain


def _volume(volume: Json, where: str, allowed: HostAccess) -> Iterator[str]:
    host = _host_path(volume, where)
    if host is not None and _allowed_by(host, allowed) is None:
        plain = _plain_path(host)
        if any(_within(plain, barred) for barred in _DEVICE_PATHS):
            yield f"{where}.hostPath.path: {host!r} reaches device nodes or their managers; remove the volume"
        else:
            paths = ", ".join(f"{entry.path}{' (read-only)' * entry.read_only}" for entry in allowed.host_paths)
            yield (
                f"{where}.hostPath.path: {host!r} is not among the paths of the node that are allowed here "
                f"({paths or 'none'}); use another kind of volume, or {_CHANGE.format('hostPaths')}"
            )
    if volume.get("csi") is not None:
        driver = text_at(map_at(volume, "csi", where), "driver", f"{where}.csi")
        if driver not in allowed.csi_drivers:
            yield (
                f"{where}.csi.driver: {driver!r} is not among the drivers that are allowed here for volumes in a pod "
                f"({', '.join(allowed.csi_drivers) or 'none'}); use a PersistentVolumeClaim, or {_CHANGE.format('csiDrivers')}"
            )
    for kind in ("flexVolume", "gitRepo"):
        if volume.get(kind) is not None:
            yield f"{where}.{kind}: runs programs on the node; use another kind of volume"


def _host_path(volume: Json, where: str) -> str | None:
    """None where the volume is no path of the node."""
    return None if volume.get("hostPath") is None else text_at(map_at(volume, "hostPath", where), "path", where)


def _capabilities(security: Json, where: str, more: Sequence[str]) -> Iterator[str]:
    added = map_at(security, "capabilities", where).get("add")
    for written in added if isinstance(added, list) else []:
        name = str(written).upper().removeprefix("CAP_")
        if name in _BASELINE_CAPABILITIES or name in more:
            continue
        if name in _PRIVILEGED_CAPABILITIES:
            yield f"{where}.capabilities.add: {written} is as good as privileged; remove it"
        else:
            yield (
                f"{where}.capabilities.add: {written} is not among those that are allowed here "
                f"({', '.join((*_BASELINE_CAPABILITIES, *more))}); remove it, or {_CHANGE.format('capabilities')}"
            )


def _profiles(security: Json, where: str) -> Iterator[str]:
    """Faults of the profiles in the security context of a pod or a container."""
    for field in ("seccompProfile", "appArmorProfile"):
        if text_at(map_at(security, field, where), "type", f"{where}.{field}") == "Unconfined":
            yield f"{where}.{field}.type: 'Unconfined': only RuntimeDefault and Localhost are allowed; remove it"
    labels = map_at(security, "seLinuxOptions", where)
    if labels.get("type") is not None and labels["type"] not in _SELINUX_TYPES:
        yield f"{where}.seLinuxOptions.type: {labels['type']!r}: only {', '.join(_SELINUX_TYPES[1:])} are allowed; remove it"
    for field in ("user", "role"):
        if labels.get(field):
            yield f"{where}.seLinuxOptions.{field}: {labels[field]!r}: none is allowed; remove it"
    if map_at(security, "windowsOptions", where).get("hostProcess"):
        yield f"{where}.windowsOptions.hostProcess: the container would run on the node itself; remove it"


def _shown(value: object) -> str:
    return "true" if value is True else repr(value)
