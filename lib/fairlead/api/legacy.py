"""Legacy requests: `nvidia.com/gpu: 8` of the device plugin as a ResourceClaimTemplate.

The name of a template encodes the whole request: the webhook writes the name into a pod, the controller creates the template
of that name for the gated pod, and nothing else passes between them. Equal requests have equal names, so a namespace needs
one template per kind and count.

Examples: `fairlead-gpu-2` and `fairlead-mig-1g.10gb-1`; `fairlead-gpu.shared-1` for a share of a GPU; for a pod that selects nodes by the labels of GPU feature discovery
`fairlead-gpu-2.product-nvidia-h100-80gb-hbm3`. After a dot come a key, a dash and a value; several values of one key are
alternatives, several keys must all hold.
"""

import re
from dataclasses import dataclass
from typing import Any

from fairlead.api import mig_profiles, names
from fairlead.api.drivers import attributes_of, part_class
from fairlead.api.object_names import is_dns_subdomain

PREFIX = "fairlead-"
NAME_MAX = 253
"""Of an object's name."""
COUNT_MAX = 32
"""resource.k8s.io/v1: AllocationResultsMaxSize, the devices that one claim may hold."""

ONE_SHARE = "a container gets one share of a GPU, and more shares are no more of its time; write 1"

_NARROW = r"(?:\.(?:product|family|memory)-[a-z0-9-]*[a-z0-9])*"
_TEMPLATE = re.compile(
    rf"{PREFIX}(?P<kind>gpu(\.shared)?|mig-(?P<profile>.+?))-(?P<count>[1-9][0-9]*)(?P<narrow>{_NARROW})"
)
_VALUES = {"product": re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"), "family": re.compile(r"[a-z]+(-[a-z]+)*")}
_MEMORY = re.compile(r"(gt|lt|eq)-(0|[1-9][0-9]{0,8})")
_COMPARED = {"gt": ">", "lt": "<", "eq": "=="}

Narrow = tuple[tuple[str, str], ...]
"""(key, value) pairs: product or family with a name, memory with `gt-`, `lt-` or `eq-` and MiB."""


@dataclass(frozen=True, kw_only=True)
class LegacyRequest:
    """count whole GPUs, count MIG devices of one profile, or one share of either; of certain products only."""

    resource: str
    count: int
    narrow: Narrow = ()

    @property
    def profile(self) -> str | None:
        """The MIG profile as NVML writes it (`1g.10gb`, `1g.10gb+me`); None for whole GPUs."""
        return profile_of(self.resource)

    @property
    def shared(self) -> bool:
        """Whether it is a share of a device that several claims hold."""
        return is_shared(self.resource)


def is_legacy(resource: str) -> bool:
    """Whether the resource is translated into a claim: nvidia.com/gpu or nvidia.com/mig-<profile>, and either with `.shared`."""
    return resource.removesuffix(names.LEGACY_SHARED) == names.LEGACY_GPU or profile_of(resource) is not None


def is_shared(resource: str) -> bool:
    """Whether the device plugin calls shares so: it is configured with `renameByDefault`."""
    return resource.endswith(names.LEGACY_SHARED)


def profile_of(resource: str) -> str | None:
    """`1g.10gb+me` for `nvidia.com/mig-1g.10gb.me`; None where resource names no MIG profile."""
    whole = resource.removesuffix(names.LEGACY_SHARED)
    text = whole.removeprefix(names.LEGACY_MIG_PREFIX)
    return None if text == whole else mig_profiles.of_resource(text)


def narrowed(label: str, operator: str, value: str) -> tuple[str, str] | None:
    """A requirement on a node label of GPU feature discovery as a pair of Narrow; None where it has no counterpart.

    Labels write `NVIDIA H100 80GB HBM3` with dashes; template names are in lower case. Products with a suffix for MIG devices
    or time-sliced GPUs (`…-MIG-1g.10gb`, `…-SHARED`) are not whole GPUs and are not translated.
    """
    text = value.lower()
    match label, operator:
        case "nvidia.com/gpu.product", "In":
            sound = _VALUES["product"].fullmatch(text) and "-mig-" not in text and not text.endswith("-shared")
            return ("product", text) if sound else None
        case "nvidia.com/gpu.family", "In":
            return ("family", text) if _VALUES["family"].fullmatch(text) else None
        case "nvidia.com/gpu.memory", "In" | "Gt" | "Lt":
            pair = f"{'eq' if operator == 'In' else operator.lower()}-{text}"
            return ("memory", pair) if _MEMORY.fullmatch(pair) else None
    return None


def meant_by_product(value: str) -> tuple[str, str] | None:
    """Product and resource that a node label such as `nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb` stands for.

    With the device plugin's strategy `single` a node has such a label, and its MIG devices are `nvidia.com/gpu`. Where it gives out
    shares under that name, the product ends with `-SHARED`. None for whole GPUs that are not shared.
    """
    whole = value.lower().removesuffix("-shared")
    shared = names.LEGACY_SHARED if whole != value.lower() else ""
    product, found, profile = whole.partition("-mig-")
    resource = f"{names.LEGACY_MIG_PREFIX}{mig_profiles.in_resource(profile)}" if found else names.LEGACY_GPU
    if not (found or shared) or not _VALUES["product"].fullmatch(product) or not is_legacy(resource):
        return None
    return product, f"{resource}{shared}"


def template_name(resource: str, count: int, narrow: Narrow = ()) -> str:
    """The template's name for a request, such as `fairlead-gpu-2`. Raises ValueError for a request that cannot be a claim."""
    if not is_legacy(resource):
        raise ValueError(f"{resource!r} is neither {names.LEGACY_GPU} nor {names.LEGACY_MIG_PREFIX}<profile>")
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"{resource}: {count}: a claim holds 1 to {COUNT_MAX} devices")
    if is_shared(resource) and count > 1:
        raise ValueError(f"{resource}: {count}: {ONE_SHARE}")
    more = "".join(f".{key}-{value}" for key, value in sorted(set(narrow)))
    name = f"{PREFIX}{resource.removeprefix('nvidia.com/')}-{count}{more}"
    if len(name) > NAME_MAX:
        raise ValueError(f"{resource}: too many alternatives for one claim: name fewer products")
    return name


def parse_template_name(name: str) -> LegacyRequest | None:
    """The request that a template's name encodes; None for any other name. The inverse of `template_name`."""
    match = _TEMPLATE.fullmatch(name)
    if match is None:
        return None
    resource, count = f"nvidia.com/{match['kind']}", int(match["count"])
    narrow: list[tuple[str, str]] = []
    for part in match["narrow"].split(".")[1:]:
        key, _, value = part.partition("-")
        if not (_MEMORY if key == "memory" else _VALUES[key]).fullmatch(value):
            return None
        narrow.append((key, value))
    most = 1 if is_shared(resource) else COUNT_MAX
    if not is_legacy(resource) or count > most or len(name) > NAME_MAX or narrow != sorted(set(narrow)):
        return None
    return LegacyRequest(resource=resource, count=count, narrow=tuple(narrow))


def template_manifest(
    name: str, namespace: str, *, driver: str = names.DRIVER, gpu: str | None = None, mig: str | None = None
) -> dict[str, Any]:
    """The ResourceClaimTemplate of that name. Raises ValueError where the name does not encode a request.

    `driver` qualifies the attributes; the classes default to those that each driver installs (`drivers.classes_of`): the driver's own
    name for GPUs, for MIG devices `mig.gpu.fairlead.dev` (of `gpu.fairlead.dev`) and `mig.nvidia.com` (of `gpu.nvidia.com`).
    """
    request = parse_template_name(name)
    if request is None or not is_dns_subdomain(name):
        raise ValueError(f"ResourceClaimTemplate {namespace}/{name}: not a name that stands for a legacy request")
    profile = request.profile
    exactly: dict[str, Any] = {
        "deviceClassName": (gpu or driver) if profile is None else (mig or part_class(driver)),
        "allocationMode": "ExactCount",
        "count": request.count,
    }
    known = attributes_of(driver)
    texts = [] if profile is None else [f"device.attributes['{driver}'].{known.profile or 'profile'} == '{profile}'"]
    if profile is None and known.whole:  # its class holds parts of GPUs, too
        texts.append(f"device.attributes['{driver}'].{known.kind} == '{known.whole}'")
    if request.shared:
        texts.append("device.allowMultipleAllocations == true")
    texts += narrowing(request.narrow, driver)
    if texts:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in texts]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE}},
        "spec": {
            "metadata": {"annotations": {names.LEGACY_REQUEST: name}},
            "spec": {"devices": {"requests": [{"name": "gpu" if profile is None else "mig", "exactly": exactly}]}},
        },
    }


def narrowing(narrow: Narrow, driver: str) -> list[str]:
    """The CEL selectors of the pairs, for devices of this driver: one per key, `in` where a key has several values."""
    attributes, found = f"device.attributes['{driver}']", []
    for key, read in (
        ("family", f"{attributes}.architecture.lowerAscii().replace(' ', '-')"),
        ("product", f"{attributes}.productName.lowerAscii().replace(' ', '-')"),
    ):
        values = [value for name, value in narrow if name == key]
        if len(values) == 1:
            found.append(f"{read} == '{values[0]}'")
        elif values:
            found.append(f"{read} in [{', '.join(repr(value) for value in values)}]")
    for value in (value for name, value in narrow if name == "memory"):
        operator, _, mebibytes = value.partition("-")
        memory = f"device.capacity['{driver}'].memory.compareTo(quantity('{mebibytes}Mi'))"
        found.append(f"{memory} {_COMPARED[operator]} 0")
    return found
