"""Legacy requests in a pod's limits, translated into claims on templates: `nvidia.com/gpu: 2`, `nvidia.com/mig-1g.10gb: 1`, `nvidia.com/gpu.shared: 1`.

Names the templates only; the controller creates them (`fairlead.api.legacy`). Each container keeps its own devices:

- a container, or a sidecar (an init container with restartPolicy Always), gets a claim of its own per resource;
- other init containers run before them, one after another, and use the same devices, as under the device plugin: each uses the
  claims of containers, and of sidecars that start after it, until it has enough devices, and an extra claim only for the rest. So
  the pod holds max(containers + sidecars, each init container + the sidecars before it), which is what Kubernetes counts.

Example: two containers with 1 GPU each, an init container with 3. Three claims of 1: one for each container, and one for the
third GPU of the init container, which uses all three. With init 8, then a sidecar of 1, then a container of 7: two claims, of 1
and 7, and the init container uses both.

Node selectors on the labels of GPU feature discovery become selectors of the claims: a daemon that a cluster with DRA need not run writes
such labels, and a node's label says nothing of the device that a claim gets. The claim's template carries them in its name. Translated are
`spec.nodeSelector`, and required node affinity with one term, on gpu.product, gpu.family and gpu.memory; the claim implies gpu.present. A
product such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`, of nodes with the device plugin's strategy `single`, makes the pod's `nvidia.com/gpu`
mean MIG devices of that profile, one that ends with `-SHARED` a share. What cannot be translated (several terms, NotIn, a MIG device's
memory, other labels) stays in the pod as it is, with a warning. Preferences stay.

A limit of 0 asks for nothing and stays, as under the device plugin. A second pass finds no limits any more and changes nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from fairlead.api import legacy, mig_profiles, names
from fairlead.api.drivers import serve_nvidia
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.objects.fields import Json, dotted, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import REQUIRED_NODE_AFFINITY, containers, required_node_terms
from fairlead.webhook.review.verdict import PatchBuilder

_GPU_LABEL = "nvidia.com/"
_PRESENT = "nvidia.com/gpu.present"
_MEMORY = "nvidia.com/gpu.memory"
_PRODUCT = "nvidia.com/gpu.product"


@dataclass(frozen=True, kw_only=True)
class _Narrowing:
    """narrow: for the template's name; keys and expressions: what to remove from the pod; untranslated: warnings.

    meant: what `nvidia.com/gpu` means here, by the product label: a MIG resource (strategy `single`), or shares.
    """

    narrow: legacy.Narrow = ()
    keys: tuple[str, ...] = ()
    expressions: tuple[int, ...] = ()
    untranslated: tuple[str, ...] = ()
    meant: str | None = None


def _narrowing(spec: Json, *, mig: bool, shares: bool) -> _Narrowing:
    """What spec requires of GPUs in its node selectors. `shares`: its limits may mean one share each. Raises MalformedError."""
    pairs: list[tuple[str, str]] = []
    keys: list[str] = []
    expressions: list[int] = []
    untranslated: list[str] = []
    meant: list[str] = []

    def translate(key: str, operator: str, values: list[str], where: str) -> bool:
        single = None if mig or operator != "In" or key != _PRODUCT else _single(values, shares=shares)
        found = _pairs(key, operator, values, mig=mig) if single is None else [("product", name) for name in single[0]]
        if isinstance(found, list) and {name for name, _ in found} & {name for name, _ in pairs} - {"memory"}:
            found = "it is said twice"
        if isinstance(found, str):
            untranslated.append(_stays(where, key, found))
            return False
        pairs.extend(found)
        meant.extend([] if single is None else [single[1]])
        return True

    for key, value in sorted(strings_at(spec, "nodeSelector", "spec").items()):
        if key.startswith(_GPU_LABEL) and translate(key, "In", [value], f"spec.nodeSelector[{key}]"):
            keys.append(key)
    terms = required_node_terms(spec)
    for at, term in enumerate(terms):
        for index, expression in enumerate(list_at(term, "matchExpressions", "nodeSelectorTerms")):
            key, operator = str(expression.get("key")), str(expression.get("operator"))
            if not key.startswith(_GPU_LABEL):
                continue
            where = f"{dotted(REQUIRED_NODE_AFFINITY)}.nodeSelectorTerms[{at}].matchExpressions[{index}]"
            values = expression.get("values")
            texts = [str(value) for value in values] if isinstance(values, list) else []
            if len(terms) > 1:
                untranslated.append(_stays(where, key, "it is one of several terms"))
            elif translate(key, operator, texts, where):
                expressions.append(index)
    try:
        legacy.template_name(*_longest(meant[0] if meant else names.LEGACY_GPU), tuple(pairs))
    except ValueError as error:
        return _Narrowing(untranslated=(f"spec.nodeSelector: {error}; the node selectors stay as they are",))
    return _Narrowing(
        narrow=tuple(pairs),
        keys=tuple(keys),
        expressions=tuple(expressions),
        untranslated=tuple(untranslated),
        meant=meant[0] if meant else None,
    )


def _longest(resource: str) -> tuple[str, int]:
    """The resource with the count that makes the longest name."""
    return resource, 1 if legacy.is_shared(resource) else legacy.COUNT_MAX


def _remove_translated(patch: PatchBuilder, found: _Narrowing) -> None:
    """Remove from the pod what its claims now select."""
    for key in found.keys:
        patch.remove(("spec", "nodeSelector", key))
    if not found.expressions:
        return
    (term,) = required_node_terms(map_at(patch.patched, "spec"))
    if len(term["matchExpressions"]) == len(found.expressions) and not term.get("matchFields"):
        patch.remove(REQUIRED_NODE_AFFINITY)  # a term without rules would match no node
        return
    for index in sorted(found.expressions, reverse=True):
        patch.remove((*REQUIRED_NODE_AFFINITY, "nodeSelectorTerms", 0, "matchExpressions", index))


def _single(values: list[str], *, shares: bool) -> tuple[list[str], str] | None:
    """The products, and the one resource beside nvidia.com/gpu, that these product labels stand for; None where there is none."""
    found = [legacy.meant_by_product(value) for value in values]
    products = [each[0] for each in found if each is not None]
    resources = {each[1] for each in found if each is not None}
    if len(products) < len(values) or len(resources) != 1:
        return None
    (resource,) = resources
    return (products, resource) if shares or not legacy.is_shared(resource) else None


def _pairs(key: str, operator: str, values: list[str], *, mig: bool) -> list[tuple[str, str]] | str:
    """What one rule requires of the device, or why it cannot be translated."""
    if key == _PRESENT and (operator == "Exists" or (operator == "In" and values == ["true"])):
        return []
    if mig and key == _MEMORY:
        return "it is the whole GPU's memory, not the MIG device's"
    found = [legacy.narrowed(key, operator, value) for value in values]
    pairs = [pair for pair in found if pair is not None]
    if not pairs or len(pairs) < len(found):
        return "it has no counterpart among a device's attributes"
    return "it names several sizes" if key == _MEMORY and len(pairs) > 1 else pairs


def _stays(where: str, key: str, reason: str) -> str:
    return f"{where}: {key} stays a rule about nodes, because {reason}; the pod waits unless a node has the label"


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
    narrowing = _narrowing(
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
    _remove_translated(patch, narrowing)
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
