"""Ways around the claims to a GPU, denied where a policy says so (`deviceBypass: Reject`).

A container that reaches its node, or one environment variable, reaches devices that the pod's claims do not allocate. Unlike the other
rules this one judges every pod of the namespaces that such a policy selects, whether it asks for devices or not: the webhook
registers itself for them (`registration`), with `Fail` for Enforce. Pods of Deployments and other kinds are judged when they are created.

- what a pod uses of its node, beyond the Pod Security baseline and the policy's `hostAccess` (`host_access`);
- the NVIDIA runtime's own switches: NVIDIA_VISIBLE_DEVICES other than void or none, volume mounts under
  /var/run/nvidia-container-devices, a runtime class of the name nvidia*, devices by annotation (CDI, NRI, CRI-O);
- GPUs of a device plugin under names that are not translated into claims, such as nvidia.com/gpu-slice (`rename` of its shares).

An *image* may carry NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's own do: the pod's spec does not show it. So an Enforce policy sets
the variable to void in each container that does not set it; the spec's value goes before the image's and before envFrom. Our
driver's CDI edits set void, too, so a pod with claims is not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.api import legacy, names
from fairlead.api.drivers import serve_nvidia
from fairlead.api.policy import TenancyPolicySpec
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import START_CONTAINERS, containers
from fairlead.webhook.policy import host_access
from fairlead.webhook.policy.policies import Policies, finding, first
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.verdict import Finding

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
HARMLESS = ("void", "none")
DEVICE_ANNOTATIONS = ("cdi.k8s.io/", "devices.nri.io/", "io.kubernetes.cri-o.Devices")
DEVICE_LIST = "/var/run/nvidia-container-devices"
PLUGIN_GPUS = (names.LEGACY_GPU, names.LEGACY_MIG_PREFIX)
ALL_CONTAINERS = (*START_CONTAINERS, "ephemeralContainers")


def bypass_findings(
    policies: Policies, pod: Json, path: str = "", *, drivers: Iterable[str], added: bool = False
) -> Iterator[Finding]:
    """Ways around the claims in a pod, or in the pod template at path; added: in its ephemeral containers. Raises MalformedError.

    drivers: the managed ones. Where none has the GPUs of legacy limits, these go to a device plugin.
    """
    translated = serve_nvidia(drivers)
    prefix = f"{path}." if path else ""
    for policy in policies:
        if policy.spec.device_bypass == "Reject":
            for text in first(_bypasses(pod, prefix, policy.spec, translated=translated, added=added)):
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


def _bypasses(pod: Json, prefix: str, rules: TenancyPolicySpec, *, translated: bool, added: bool) -> Iterator[str]:
    spec = map_at(pod, "spec", prefix.removesuffix("."))
    where = f"{prefix}spec"
    lists = ("ephemeralContainers",) if added else ALL_CONTAINERS
    read_only = host_access.read_only_volumes(spec, rules.host_access)
    for at, container in host_access.all_containers(spec, where, lists):
        yield from host_access.container_findings(container, at, read_only, rules.host_access.capabilities)
        yield from _container_bypasses(container, at)
        if rules.legacy_requests != "Ignore":
            yield from _plugin_gpus(container, at, translated=translated)
    if added:
        return
    runtime = text_at(spec, "runtimeClassName", where)
    if runtime.startswith("nvidia"):
        yield f"{where}.runtimeClassName: {runtime!r} adds GPUs by itself; remove it, and ask by a claim"
    for key in strings_at(map_at(pod, "metadata", prefix.removesuffix(".")), "annotations", f"{prefix}metadata"):
        if key.startswith(DEVICE_ANNOTATIONS):
            yield f"{prefix}metadata.annotations[{key}]: adds devices by itself; remove it, and ask by a claim"
    yield from host_access.pod_findings(pod, prefix, rules.host_access)


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
        if ("nvidia" in path or ".." in path) and host_access.within(
            host_access.plain_path(path), host_access.plain_path(DEVICE_LIST)
        ):
            yield f"{where}.volumeMounts[{index}].mountPath: {path!r} asks the NVIDIA runtime for a GPU; remove it"


def _plugin_gpus(container: Json, where: str, *, translated: bool) -> Iterator[str]:
    resources = map_at(container, "resources", where)
    for side in ("limits", "requests"):
        for name, amount in map_at(resources, side, f"{where}.resources").items():
            claimed = translated and legacy.is_legacy(name)
            if name.startswith(PLUGIN_GPUS) and not claimed and amount not in (0, "0"):
                yield f"{where}.resources.{side}[{name}]: asks a device plugin for a GPU; remove it, and ask by a claim"
