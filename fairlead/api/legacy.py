"""Legacy requests: `nvidia.com/gpu: 8` of the device plugin as a ResourceClaimTemplate.

Exists so that webhook and controller agree without talking: the webhook writes a template's *name* into
a pod, the controller sees the gated pod and makes the template of that name. Same request, same name, so
a namespace needs one template per kind and count. Changes no pods.
"""

import re
from dataclasses import dataclass
from typing import Any

from fairlead.api import names
from fairlead.api.base import is_dns_subdomain

PREFIX = "fairlead-"
COUNT_MAX = 32
"""resource.k8s.io/v1: AllocationResultsMaxSize, the devices that one claim may hold."""

# The device plugin writes a profile's attributes with dots where NVML has a plus: 1g.10gb+me, mig-1g.10gb.me.
_PROFILE = re.compile(r"[1-9][0-9]*(c\.[1-9][0-9]*)?g\.[1-9][0-9]*gb(\.[a-z0-9]+)*")
_TEMPLATE = re.compile(rf"{PREFIX}(?P<kind>gpu|mig-(?P<profile>.+))-(?P<count>[1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True)
class LegacyRequest:
    """count whole GPUs, or count MIG devices of one profile."""

    resource: str
    count: int

    @property
    def profile(self) -> str | None:
        """The MIG profile as NVML writes it (`1g.10gb`, `1g.10gb+me`); None for whole GPUs."""
        return profile_of(self.resource)


def is_legacy(resource: str) -> bool:
    """Whether this is a resource name that we translate: nvidia.com/gpu, nvidia.com/mig-<profile>."""
    return resource == names.LEGACY_GPU or profile_of(resource) is not None


def profile_of(resource: str) -> str | None:
    """`1g.10gb+me` for `nvidia.com/mig-1g.10gb.me`; None where resource names no MIG profile."""
    text = resource.removeprefix(names.LEGACY_MIG_PREFIX)
    if text == resource or not _PROFILE.fullmatch(text):
        return None
    memory_end = text.index("gb") + len("gb")
    return text[:memory_end] + text[memory_end:].replace(".", "+")


def template_name(resource: str, count: int) -> str:
    """`fairlead-gpu-2`, `fairlead-mig-1g.10gb-1`. Raises ValueError on what cannot be a claim."""
    if not is_legacy(resource):
        raise ValueError(f"{resource!r} is neither {names.LEGACY_GPU} nor {names.LEGACY_MIG_PREFIX}<profile>")
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"{resource}: {count}: a claim holds 1 to {COUNT_MAX} devices")
    return f"{PREFIX}{resource.removeprefix('nvidia.com/')}-{count}"


def parse_template_name(name: str) -> LegacyRequest | None:
    """The request behind a template's name; None where the name is not one of ours."""
    match = _TEMPLATE.fullmatch(name)
    if match is None:
        return None
    resource, count = f"nvidia.com/{match['kind']}", int(match["count"])
    return LegacyRequest(resource=resource, count=count) if is_legacy(resource) and count <= COUNT_MAX else None


def template_manifest(
    name: str, namespace: str, *, driver: str = names.DRIVER, gpu: str | None = None, mig: str | None = None
) -> dict[str, Any]:
    """The ResourceClaimTemplate of that name. Raises ValueError where the name is not one of ours.

    driver qualifies the profile attribute; the classes default to `gpu.<vendor>` and `mig.<vendor>` as
    each driver ships them (`gpu.fairlead.dev` has `mig.gpu.fairlead.dev`, `gpu.nvidia.com` has `mig.nvidia.com`).
    """
    request = parse_template_name(name)
    if request is None or not is_dns_subdomain(name):
        raise ValueError(f"ResourceClaimTemplate {namespace}/{name}: not a name that stands for a legacy request")
    profile = request.profile
    exactly: dict[str, Any] = {
        "deviceClassName": (gpu or driver) if profile is None else (mig or mig_class(driver)),
        "allocationMode": "ExactCount",
        "count": request.count,
    }
    if profile is not None:
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{driver}'].profile == '{profile}'"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE}},
        "spec": {
            "spec": {"devices": {"requests": [{"name": "gpu" if profile is None else "mig", "exactly": exactly}]}}
        },
    }


def mig_class(driver: str) -> str:
    """The class of MIG devices that a driver ships beside the class of its own name."""
    return names.MIG_CLASS if driver == names.DRIVER else f"mig.{driver.removeprefix('gpu.')}"
