"""How a claim shares its devices, where that cannot be: faults of its text, and warnings by the devices that the cluster has. Pure.

The driver refuses the same by the same rules (`api/sharing.py`) when a pod starts; here it is said when the claim is written. What only
the driver can know, as which GPU an index is, is left to it.

Example: a request for `capacity.requests.memory: 20Gi` with `mpsConfig.defaultPinnedDeviceMemoryLimit: 30Gi` is a fault; one for 200Gi of
GPUs that have 80Gi is a warning, as is one for a part of GPUs that no driver shares: it gets a whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead.api import names
from fairlead.api import sharing as rules
from fairlead.api.base import ManifestError
from fairlead.api.config import DeviceConfig, GpuConfig, GpuSharing, MigSharing, decode
from fairlead.cel.devices.requests import Request, alternatives
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import DeviceRequest, OpaqueDeviceConfiguration, ResourceClaimSpec
from fairlead.webhook.objects.device_models import DeviceModel

MEMORY = "memory"


@dataclass(frozen=True)
class _Sharing:
    """`requests`: those that the config names; empty: all that it fits. `field`: the path of its sharing."""

    requests: tuple[str, ...]
    field: str
    config: DeviceConfig
    sharing: GpuSharing | MigSharing

    def applies(self, request: DeviceRequest) -> bool:
        named = any(name.partition("/")[0] == request.name for name in self.requests)
        return named or (not self.requests and _is_mig(request) != isinstance(self.config, GpuConfig))


def faults(
    spec: ResourceClaimSpec, configs: Iterable[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]]
) -> Iterator[str]:
    """`configs`: path of the parameters, the requests that each names, and itself; one that does not decode has other faults."""
    found = tuple(_sharings(configs))
    for each in found:
        yield from _mps_faults(spec, each)
        yield from _share_faults(spec, each)
        yield from _limit_faults(spec, each)
    yield from _contradictions(spec, found)


def warnings(
    spec: ResourceClaimSpec, configs: Iterable[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]]
) -> Iterator[str]:
    """Requests whose devices one program cannot use together."""
    found = tuple(_sharings(configs))
    by_mps = sorted({request.name for each in found for request in _of(spec, each) if each.sharing.strategy == "MPS"})
    others = sorted(each.name for each in spec.devices.requests if _is_ours(each) and each.name not in by_mps)
    if by_mps and others:
        yield (
            f"devices.config: a container that uses {_listed(by_mps)}, which {'are' if len(by_mps) > 1 else 'is'} under MPS, sees no device "
            f"of {_listed(others)}: CUDA shows what the MPS daemon serves; give them to different containers, or write MPS for all"
        )


def pod_warnings(
    containers: Iterable[tuple[str, Sequence[str]]], claims: Mapping[str, ResourceClaimSpec]
) -> Iterator[str]:
    """Containers that cannot use the devices of all their claims together. `containers`: path and names of its claims; `claims`: by name."""
    under_mps = {
        name
        for name, spec in claims.items()
        if any(each.sharing.strategy == "MPS" for each in _sharings(own_configs(spec)))
    }
    for path, named in containers:
        ours = [name for name in dict.fromkeys(named) if name in claims]
        if len(ours) > 1 and (daemons := [name for name in ours if name in under_mps]):
            yield (
                f"{path}.resources.claims: claim {daemons[0]!r} is under MPS, so a CUDA program of this container sees no device of "
                f"{', '.join(repr(name) for name in ours if name != daemons[0])}: each claim under MPS has a daemon of its own; use "
                "one claim with a request for each device, or a container for each claim"
            )


def own_configs(spec: ResourceClaimSpec) -> Iterator[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]]:
    """What the claim says of our driver's devices: path below the spec, the requests that it names, and itself."""
    for index, config in enumerate(spec.devices.config):
        if config.opaque is not None and config.opaque.driver == names.DRIVER:
            yield f"devices.config[{index}].opaque.parameters", config.requests, config.opaque


def capacity_warning(request: Request, models: Sequence[DeviceModel] | None) -> str | None:
    """Why none of the models that the request may get has what it asks, or why it gets more; None where one does, or nothing is known."""
    if not models or request.capacity is None or not request.capacity.requests:
        return None
    for name, amount in request.capacity.requests.items():
        had = [size for model in models if (size := _capacity(model, name)) is not None]
        wanted = _quantity(amount)
        if wanted is not None and had and max(had) < wanted:
            most = max(models, key=lambda model: _capacity(model, name) or Quantity.of(0))
            return (
                f"capacity.requests[{name}]: {amount} is more than any device has that it may get: the most is "
                f"{max(had)} of {most.label} ({most.example}); pods wait until a larger one comes"
            )
    if not any(model.view.allow_multiple_allocations for model in models):
        shown = models[0]
        return (
            f"capacity.requests: no device that it may get is shared, as {shown.label} ({shown.example}): the claim gets a whole one; "
            f"an administrator turns on sharing in the driver (Fairlead's: {'--shared-gpus' if shown.whole_gpu else '--shared-mig'})"
        )
    return None


def _sharings(configs: Iterable[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]]) -> Iterator[_Sharing]:
    for path, requests, opaque in configs:
        try:
            config = decode(opaque.parameters, subject=path)
        except ManifestError:
            continue
        if config.sharing is not None:
            yield _Sharing(requests, f"{path}.sharing", config, config.sharing)


def _mps_faults(spec: ResourceClaimSpec, given: _Sharing) -> Iterator[str]:
    """MPS over more than one MIG device, where the claim's text already says so."""
    if given.sharing.strategy != "MPS" or isinstance(given.config, GpuConfig):
        return
    count = sum(_least_devices(request) for request in _of(spec, given))
    if why := rules.several_mig_devices(count, f"{count} MIG devices"):
        yield f"{given.field}.strategy: {why}"


def _share_faults(spec: ResourceClaimSpec, given: _Sharing) -> Iterator[str]:
    """Time slices for a share."""
    for request in _of(spec, given):
        if any(option.capacity is not None and option.capacity.requests for option in alternatives(request)):
            holder = f"request {request.name!r} asks for a share (capacity.requests)"
            if why := rules.time_sliced_share(given.sharing, gpu="the GPU", holder=holder):
                yield f"{given.field}.strategy: {why}"


def _limit_faults(spec: ResourceClaimSpec, given: _Sharing) -> Iterator[str]:
    """A limit of a program that is above the claim's share, in each alternative."""
    mps = given.sharing.mps_config
    written = None if mps is None else mps.default_pinned_device_memory_limit
    limit = _quantity(written)
    if limit is None:
        return
    for request in _of(spec, given):
        shares = [_quantity(_asked(option).get(MEMORY)) for option in alternatives(request)]
        known = [share for share in shares if share is not None]
        if not known or len(known) < len(shares):
            continue
        most, of = max(known), f"that request {request.name!r} asks for"
        if why := rules.limit_above_share(int(limit), int(most), limit=str(written), share=str(most), of=of):
            yield f"{given.field}.mpsConfig.defaultPinnedDeviceMemoryLimit: {why}"


def _contradictions(spec: ResourceClaimSpec, found: Sequence[_Sharing]) -> Iterator[str]:
    """Two strategies for one request, neither of which is the more special one."""
    for request in spec.devices.requests:
        own = [each for each in found if each.applies(request)]
        for at, each in enumerate(own):
            other = next((o for o in own[:at] if bool(o.requests) == bool(each.requests)), None)
            if other is not None and other.sharing.strategy != each.sharing.strategy:
                yield (
                    f"{each.field}.strategy: {each.sharing.strategy!r} for request {request.name!r}, and {other.field}.strategy says "
                    f"{other.sharing.strategy!r}: a device has one; remove one of both"
                )


def _of(spec: ResourceClaimSpec, given: _Sharing) -> Iterator[DeviceRequest]:
    return (request for request in spec.devices.requests if given.applies(request))


def _is_mig(request: DeviceRequest) -> bool:
    """Whether each of its alternatives is of the class of MIG devices."""
    return all(option.device_class_name == names.MIG_CLASS for option in alternatives(request))


def _is_ours(request: DeviceRequest) -> bool:
    return any(option.device_class_name in {names.GPU_CLASS, names.MIG_CLASS} for option in alternatives(request))


def _least_devices(request: DeviceRequest) -> int:
    """The least that the request may get; all of a node may be one."""
    if request.exactly is not None and request.exactly.admin_access:
        return 0
    counts = (1 if option.allocation_mode == "All" else option.count for option in alternatives(request))
    return min(counts, default=0)


def _asked(option: Request) -> dict[str, object]:
    """What it asks of capacities, by plain name."""
    asked = option.capacity.requests if option.capacity is not None else {}
    return {name.rpartition("/")[2]: amount for name, amount in asked.items()}


def _capacity(model: DeviceModel, name: str) -> Quantity | None:
    domain, _, plain = name.rpartition("/")
    return _quantity(model.view.capacity.get(domain or model.view.driver, {}).get(plain))


def _quantity(value: object) -> Quantity | None:
    try:
        return value if isinstance(value, Quantity) else Quantity.of(value) if isinstance(value, str | int) else None
    except QuantityError:
        return None


def _listed(requests: Sequence[str]) -> str:
    return f"request{'s' if len(requests) > 1 else ''} {', '.join(map(repr, requests))}"
