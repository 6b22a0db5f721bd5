"""`nvidia.com/gpu: 2`, `nvidia.com/mig-1g.10gb: 1`, `nvidia.com/gpu.shared: 1` in a pod's limits, translated into claims on templates.

Names the templates only; the controller creates them (`fairlead.api.legacy`). Each container keeps its own devices:

- a container, or a sidecar (an init container with restartPolicy Always), gets a claim of its own per resource;
- other init containers run before them, one after another, and use the same devices, as under the device plugin: each uses the
  claims of containers, and of sidecars that start after it, until it has enough devices, and an extra claim only for the rest. So
  the pod holds max(containers + sidecars, each init container + the sidecars before it), which is what Kubernetes counts.

Example: two containers with 1 GPU each, an init container with 3. Three claims of 1: one for each container, and one for the
third GPU of the init container, which uses all three. With init 8, then a sidecar of 1, then a container of 7: two claims, of 1
and 7, and the init container uses both.

Node selectors on the labels of GPU feature discovery become selectors of the claims (`node_selectors`). A limit of 0 asks for
nothing and stays, as under the device plugin. A second pass finds no limits any more and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from fairlead.api import legacy, mig_profiles, names
from fairlead.api.drivers import serve_nvidia
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.legacy import node_selectors
from fairlead.webhook.objects.fields import Json, list_at, map_at, text_at
from fairlead.webhook.objects.pods import containers
from fairlead.webhook.review.patch import PatchBuilder

_NO_LABEL = re.compile(r"[^a-z0-9]+")


class LegacyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`count` devices of a legacy resource, in one container's limits."""

    list_name: str
    index: int
    resource: str
    count: int
    sidecar: bool = False
    """An init container that keeps running: restartPolicy Always."""

    @property
    def init(self) -> bool:
        """Whether the container ends before the others start."""
        return self.list_name == "initContainers" and not self.sidecar

    @property
    def path(self) -> str:
        return f"spec.{self.list_name}[{self.index}].resources.limits[{self.resource}]"


class LegacyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The legacy limits of a pod, in order, and what is wrong with those that cannot be translated."""

    limits: tuple[LegacyLimit, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.limits or self.faults)

    @property
    def paths(self) -> list[str]:
        return [limit.path for limit in self.limits]


@dataclass(kw_only=True)
class _NewClaim:
    name: str
    count: int
    users: list[LegacyLimit] = field(default_factory=list)


def legacy_limits(spec: Json, drivers: Iterable[str]) -> LegacyLimits:
    """None where no managed driver has such GPUs: they are left to the device plugin of other nodes. Raises MalformedError."""
    if not serve_nvidia(drivers):
        return LegacyLimits()
    found: list[LegacyLimit] = []
    faults: list[str] = []
    for list_name, index, container in containers(spec):
        path = f"spec.{list_name}[{index}].resources"
        resources = map_at(container, "resources", path.removesuffix(".resources"))
        limits = map_at(resources, "limits", path)
        requests = map_at(resources, "requests", path)
        for resource in sorted(
            {name for side in (limits, requests) for name in side if name.startswith("nvidia.com/")}
        ):
            if not legacy.is_legacy(resource):
                if resource.startswith(names.LEGACY_MIG_PREFIX):
                    faults.append(
                        f"{path}.limits[{resource}]: no MIG profile; write {names.LEGACY_MIG_PREFIX}<profile>, such as "
                        f"{names.LEGACY_MIG_PREFIX}1g.10gb, with its attributes ({', '.join(mig_profiles.ATTRIBUTES)}) as in .me or -me"
                    )
                continue
            try:
                count = _count(path, resource, limits, requests)
            except ValueError as error:
                faults.append(str(error))
                continue
            if count == 0:
                continue  # asks for nothing, and stays, as under the device plugin
            if count > 1 and legacy.is_shared(resource):
                faults.append(f"{path}.limits[{resource}]: {count}: {legacy.ONE_SHARE}")
                continue
            text_at(container, "name", path)  # raises MalformedError
            sidecar = list_name == "initContainers" and container.get("restartPolicy") == "Always"
            found.append(LegacyLimit(list_name=list_name, index=index, resource=resource, count=count, sidecar=sidecar))
    return LegacyLimits(limits=tuple(found), faults=tuple(faults))


def translate(patch: PatchBuilder, limits: tuple[LegacyLimit, ...]) -> tuple[str, ...]:
    """Replace the limits by claims, and the node selectors on GPU labels by claim selectors. Returns warnings."""
    spec = map_at(patch.patched, "spec")
    narrowing = node_selectors.narrowing(
        spec,
        mig=any(legacy.profile_of(limit.resource) is not None for limit in limits),
        shares=all(limit.count == 1 for limit in limits),
    )
    entries = list_at(spec, "resourceClaims", "spec")
    taken = {text_at(entry, "name", f"spec.resourceClaims[{index}]") for index, entry in enumerate(entries)}
    for resource in sorted({limit.resource for limit in limits}):
        for claim in _new_claims(resource, [limit for limit in limits if limit.resource == resource], taken):
            meant = narrowing.meant if resource == names.LEGACY_GPU and narrowing.meant else resource
            template = legacy.template_name(meant, claim.count, narrowing.narrow)
            patch.append(("spec", "resourceClaims"), {"name": claim.name, "resourceClaimTemplateName": template})
            for user in claim.users:
                patch.append(("spec", user.list_name, user.index, "resources", "claims"), {"name": claim.name})
    for limit in limits:
        at = ("spec", limit.list_name, limit.index, "resources")
        resources = patch.patched["spec"][limit.list_name][limit.index]["resources"]
        for side in ("limits", "requests"):
            if limit.resource in (resources.get(side) or {}):
                patch.remove((*at, side, limit.resource))
    node_selectors.remove_translated(patch, narrowing)
    return narrowing.untranslated


def _new_claims(resource: str, limits: list[LegacyLimit], taken: set[str]) -> list[_NewClaim]:
    """Claims for one resource: the containers' own, then what init containers need beyond them. Adds to the taken names."""
    claims: list[_NewClaim] = []

    def add(limit: LegacyLimit, count: int) -> None:
        claims.append(_NewClaim(name=_claim_name(limit, taken), count=count, users=[limit]))
        taken.add(claims[-1].name)

    for limit in limits:
        if not limit.init:
            add(limit, limit.count)
    for limit in limits:
        if not limit.init:
            continue
        free = [claim for claim in claims if not (claim.users[0].sidecar and claim.users[0].index < limit.index)]
        exact = next((claim for claim in free if claim.count == limit.count), None)
        missing = limit.count
        for claim in free if exact is None else [exact]:
            if missing > 0:
                claim.users.append(limit)
                missing -= claim.count
        if missing > 0:
            add(limit, missing)
    return claims


def _claim_name(limit: LegacyLimit, taken: set[str]) -> str:
    """A claim's name within the pod, a DNS label: `fairlead-gpu-0` for container 0, `fairlead-gpu-init-0` for an init container."""
    resource = _NO_LABEL.sub("-", limit.resource.removeprefix("nvidia.com/"))
    kind = "init-" if limit.list_name == "initContainers" else ""
    name = base = f"{names.MANAGED_BY_VALUE}-{resource}-{kind}{limit.index}"[:60]
    extra = 1
    while name in taken:
        extra += 1
        name = f"{base}-{extra}"
    return name


def _count(path: str, resource: str, limits: Json, requests: Json) -> int:
    """The number of devices that limit and request agree on. Raises ValueError with path, value and next step."""
    if resource not in limits:
        raise ValueError(
            f"{path}.limits[{resource}]: is missing, but requests has {requests[resource]!r}; "
            "GPUs are not shared by requests: write the same number in limits"
        )
    limit = _whole_number(f"{path}.limits[{resource}]", limits[resource])
    if resource in requests:
        request = _whole_number(f"{path}.requests[{resource}]", requests[resource])
        if request != limit:
            raise ValueError(
                f"{path}.requests[{resource}]: {request} must equal the limit {limit}, as for every extended resource; "
                "remove the request"
            )
    return limit


def _whole_number(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{path}: {value!r} is no number of devices; write a whole number")  # noqa: TRY004 - a fault
    if isinstance(value, int) and 0 <= value <= legacy.COUNT_MAX:
        return value
    try:
        quantity = Quantity.of(value)
    except QuantityError:
        raise ValueError(f"{path}: {value!r} is no number of devices; write a whole number") from None
    if quantity.sign < 0:
        raise ValueError(f"{path}: {value} is negative; write a whole number of devices")
    if quantity > Quantity(legacy.COUNT_MAX):
        raise ValueError(
            f"{path}: {value} devices are more than one claim may hold ({legacy.COUNT_MAX}) and more than a node has; "
            "use more pods with fewer devices each, as a gang"
        )
    if Quantity(int(quantity)) != quantity:
        raise ValueError(
            f"{path}: {value} is not whole; a device is given whole. For part of a GPU ask for a MIG device "
            f"({names.LEGACY_MIG_PREFIX}1g.10gb: 1) or share a claim between containers"
        )
    return int(quantity)
