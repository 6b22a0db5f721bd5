"""The device requests of a claim, and whether a driver's devices may satisfy one, by class and selectors alone.

Webhook (which gates pods) and controller (which allocates for them) decide with this which claims are managed. What a
missing DeviceClass means is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlead.cel.devices.managed import excludes, may_select, named_drivers, reads_driver
from fairlead.cel.devices.selector import load_fault
from fairlead.kube.resource import (
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)

Request = ExactDeviceRequest | DeviceSubRequest


def device_requests(spec: ResourceClaimSpec) -> Iterator[tuple[str, Request]]:
    """Every request and sub-request, each with its path below the claim's spec."""
    for index, request in enumerate(spec.devices.requests):
        path = f"devices.requests[{index}]"
        if request.exactly is not None:
            yield f"{path}.exactly", request.exactly
        for sub_index, sub in enumerate(request.first_available):
            yield f"{path}.firstAvailable[{sub_index}]", sub


def alternatives(request: DeviceRequest) -> tuple[Request, ...]:
    """What it asks for, the first that can be had; () for a request that asks for nothing known here."""
    return (request.exactly,) if request.exactly is not None else request.first_available


def first_asked(request: DeviceRequest) -> Request | None:
    """The alternative that is tried first; None where it holds no device: it asks for nothing, or for admin access."""
    if request.exactly is not None and request.exactly.admin_access:
        return None
    return next(iter(alternatives(request)), None)


def expressions(selectors: Iterable[DeviceSelector]) -> list[str]:
    """The selectors' CEL expressions."""
    return [selector.cel.expression for selector in selectors if selector.cel is not None]


def may_serve(request: Request, device_class: DeviceClass | None, drivers: Iterable[str]) -> bool:
    """Whether a device of one of the drivers may match the request's and its class's selectors.

    In doubt yes. A selector that does not compile is refused in the review of its own object, and counts as matching here.
    Where the class alone decides, and in selectors that do not read the driver, nothing is compiled.
    """
    serving = tuple(driver for driver in drivers if class_may_serve(device_class, driver))
    texts = [text for text in expressions(request.selectors) if reads_driver(text)] if serving else []
    return any(not any(excludes(text, driver) for text in texts) for driver in serving)


def others_fault(
    spec: ResourceClaimSpec, classes: Mapping[str, DeviceClass], drivers: Iterable[str], shared: Iterable[str] = ()
) -> str | None:
    """Why a claim is not allocated: these drivers may serve one of its requests, and none of them another one; None elsewhere.

    kube-scheduler gives out devices of other drivers for claims of its own. Two that allocate one device at a time each see the other's
    write too late, so that both would give out the same one: all devices of a claim are of drivers that one of the two allocates for.
    `shared`: drivers of which the administrator says that kube-scheduler gives out none of their devices. They may stand in a claim beside
    `drivers`, one of whose devices each claim holds: by it the fence and the controller know the claim.
    """
    drivers = tuple(drivers)
    shared = tuple(driver for driver in shared if driver not in drivers)
    if len(spec.devices.requests) < 2 and not shared:
        return None
    # The apiserver refuses a request that asks for nothing, but after the webhook: it is left out here.
    asked = {index: asks for index, each in enumerate(spec.devices.requests) if (asks := alternatives(each))}

    def serving(some: tuple[str, ...]) -> list[bool]:
        return [
            any(may_serve(ask, classes.get(ask.device_class_name), some) for ask in asks) for asks in asked.values()
        ]

    managed = serving(drivers)
    beside = serving(shared)
    if not any(managed):
        return None
    if all(beside):
        return (
            f"devices.requests: each may be given devices of {' or '.join(shared)} (sharedClaimDrivers), and Fairlead allocates these only "
            "beside a device of a driver that it manages: select the driver in one of them, device.driver == ..., and offer no other there"
        )
    served = [ours or theirs for ours, theirs in zip(managed, beside, strict=True)]
    if all(served):
        return None
    other = list(asked)[served.index(False)]
    name = asked[other][0].device_class_name
    named = named_drivers(expressions(classes[name].spec.selectors)) if name in classes else ()
    driver = " or ".join(named) or "its driver"
    return (
        f"devices.requests[{other}]: DeviceClass {name} is of a driver that Fairlead does not allocate for, and other requests of the claim "
        f"are not: add {driver} to managedDrivers of the chart (--managed-driver), or ask for its devices in a claim of their own"
    )


def class_may_serve(device_class: DeviceClass | None, driver: str) -> bool:
    """Whether a device of the driver may match the class's selectors; yes without the class."""
    if device_class is None:
        return True
    return may_select(expressions(device_class.spec.selectors), driver)


def selectors_fault(spec: ResourceClaimSpec, classes: Mapping[str, DeviceClass], drivers: Iterable[str]) -> str | None:
    """Why the claim's selectors are too large together to be compiled here; None where they are not.

    Requests that no driver of these can serve, by their class, are not counted: their selectors are never compiled.
    """
    drivers = tuple(drivers)
    return load_fault(
        text
        for _, request in device_requests(spec)
        if request.selectors
        and any(class_may_serve(classes.get(request.device_class_name), driver) for driver in drivers)
        for text in expressions(request.selectors)
    )
