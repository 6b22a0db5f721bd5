"""`nvidia.com/gpu: 2` and `nvidia.com/mig-1g.10gb: 1` in a pod's limits, turned into claims on templates.

Exists so that a pod written for the device plugin runs unchanged. Names templates only; the controller makes
them (`fairlead.api.legacy`). Each container keeps its own devices:

- a container, or an init container that stays (restartPolicy Always), gets a claim of its own per resource;
- other init containers run before them, one after another, and use the same devices, as under the device plugin:
  they take the containers' claims until they have enough, and an extra claim only for what is still missing,
  so that the pod holds max(sum of containers, largest init container), which is what Kubernetes counts. The devices
  of one that stays are in use by then, and not lent.

Node selectors on the labels of GPU feature discovery become selectors of the claims (legacy_selectors.py). A limit of 0
asks for nothing and stays, as under the device plugin. A second pass finds no limits any more and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from fairlead.api import legacy, names
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.legacy import node_selectors as selectors
from fairlead.webhook.objects.fields import Json, list_at, map_at, text_at
from fairlead.webhook.review.patch import Draft

_NO_LABEL = re.compile(r"[^a-z0-9]+")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """count devices of a legacy resource, asked by one container."""

    list_name: str
    index: int
    container: str
    resource: str
    count: int
    stays: bool = False
    """restartPolicy Always: among init containers, a sidecar."""

    @property
    def transient(self) -> bool:
        """An init container that ends before the containers start."""
        return self.list_name == "initContainers" and not self.stays

    @property
    def path(self) -> str:
        return f"spec.{self.list_name}[{self.index}].resources"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks in the old way, and what is wrong with it."""

    asks: tuple[Ask, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.asks or self.faults)


@dataclass(kw_only=True)
class _Claim:
    name: str
    resource: str
    count: int
    users: list[Ask] = field(default_factory=list)


def find(spec: Json) -> Found:
    """Every legacy request of a pod spec, in order, with its faults. Raises MalformedError."""
    asks: list[Ask] = []
    faults: list[str] = []
    for list_name, index, container in _containers(spec):
        path = f"spec.{list_name}[{index}].resources"
        resources = map_at(container, "resources", path.removesuffix(".resources"))
        limits = map_at(resources, "limits", path)
        requests = map_at(resources, "requests", path)
        named = {resource for side in (limits, requests) for resource in side if resource.startswith("nvidia.com/")}
        for resource in sorted(named):
            if not resource.startswith((names.LEGACY_MIG_PREFIX, names.LEGACY_GPU)):
                continue
            if not legacy.is_legacy(resource):
                if resource.startswith(names.LEGACY_MIG_PREFIX):
                    faults.append(
                        f"{path}.limits[{resource}]: no MIG profile; write {names.LEGACY_MIG_PREFIX}<profile>, "
                        f"such as {names.LEGACY_MIG_PREFIX}1g.10gb"
                    )
                continue
            try:
                count = _count(path, resource, limits, requests)
            except ValueError as error:
                faults.append(str(error))
                continue
            if count == 0:
                continue  # as under the device plugin: it asks for nothing, and stays
            asks.append(
                Ask(
                    list_name=list_name,
                    index=index,
                    container=text_at(container, "name", path),
                    resource=resource,
                    count=count,
                    stays=container.get("restartPolicy") == "Always",
                )
            )
    return Found(asks=tuple(asks), faults=tuple(faults))


def translate(draft: Draft, asks: tuple[Ask, ...]) -> tuple[str, ...]:
    """Turn the requests of draft's pod into claims, with its node selectors on GPUs. Returns what could not be turned."""
    narrowing = selectors.narrowing(map_at(draft.object, "spec"), mig=any(a.resource != names.LEGACY_GPU for a in asks))
    entries = list_at(map_at(draft.object, "spec"), "resourceClaims", "spec")
    taken = {text_at(entry, "name", f"spec.resourceClaims[{index}]") for index, entry in enumerate(entries)}
    claims: list[_Claim] = []
    for resource in sorted({ask.resource for ask in asks}):
        mine = [ask for ask in asks if ask.resource == resource]
        claims += _claims(resource, mine, taken)
    for claim in claims:
        template = legacy.template_name(claim.resource, claim.count, narrowing.narrow)
        draft.append(("spec", "resourceClaims"), {"name": claim.name, "resourceClaimTemplateName": template})
        for ask in claim.users:
            draft.append(("spec", ask.list_name, ask.index, "resources", "claims"), {"name": claim.name})
    for ask in asks:
        for side in ("limits", "requests"):
            resources = draft.object["spec"][ask.list_name][ask.index]["resources"]
            if ask.resource in (resources.get(side) or {}):
                draft.remove(("spec", ask.list_name, ask.index, "resources", side, ask.resource))
    selectors.remove(draft, narrowing)
    return narrowing.left


def _claims(resource: str, asks: list[Ask], taken: set[str]) -> list[_Claim]:
    """Claims for one resource: the containers' own, then what init containers need beyond them."""
    claims: list[_Claim] = []

    def make(ask: Ask, count: int) -> None:
        claim = _Claim(name=_name(ask, resource, taken), resource=resource, count=count, users=[ask])
        taken.add(claim.name)
        claims.append(claim)

    for ask in (ask for ask in asks if not ask.transient):
        make(ask, ask.count)
    for ask in (ask for ask in asks if ask.transient):
        free = [
            claim for claim in claims if not (claim.users[0].list_name == "initContainers" and claim.users[0].stays)
        ]
        exact = next((claim for claim in free if claim.count == ask.count), None)
        missing = ask.count
        for claim in free if exact is None else [exact]:
            if missing > 0:
                claim.users.append(ask)
                missing -= claim.count
        if missing > 0:
            make(ask, missing)
    return claims


def _name(ask: Ask, resource: str, taken: set[str]) -> str:
    """A claim's name within the pod, a DNS label: what for, and for which container."""
    what = _NO_LABEL.sub("-", resource.removeprefix("nvidia.com/"))
    kind = "init-" if ask.list_name == "initContainers" else ""
    name = base = f"{names.MANAGED_BY_VALUE}-{what}-{kind}{ask.index}"[:60]
    extra = 1
    while name in taken:
        extra += 1
        name = f"{base}-{extra}"
    return name


def _count(path: str, resource: str, limits: Json, requests: Json) -> int:
    """The number of devices that both sides agree on. Raises ValueError with path, value and next step."""
    if resource not in limits:
        raise ValueError(
            f"{path}.limits[{resource}]: is missing, but requests has {requests[resource]!r}; "
            "GPUs are not shared by requests: write the same number in limits"
        )
    limit = _whole(f"{path}.limits[{resource}]", limits[resource])
    if resource in requests:
        request = _whole(f"{path}.requests[{resource}]", requests[resource])
        if request != limit:
            raise ValueError(
                f"{path}.requests[{resource}]: {request} must equal the limit {limit}, as for every extended resource; "
                "remove the request"
            )
    return limit


def _whole(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{path}: {value!r} is no number of devices; write a whole number")  # noqa: TRY004 - a fault
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


def _containers(spec: Json) -> Iterator[tuple[str, int, Json]]:
    for list_name in ("initContainers", "containers"):
        for index, container in enumerate(list_at(spec, list_name, "spec")):
            yield list_name, index, container
