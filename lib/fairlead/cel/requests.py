"""The device requests of a claim, and whether a driver's devices may satisfy one, by class and selectors alone.

Webhook (which gates pods) and controller (which allocates for them) decide with this which claims are managed. What a
missing DeviceClass means is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from fairlead.cel.errors import CompileError
from fairlead.cel.managed import may_select
from fairlead.cel.selector import compile_selector
from fairlead.kube.resource import DeviceClass, DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec

Request = ExactDeviceRequest | DeviceSubRequest


def device_requests(spec: ResourceClaimSpec) -> Iterator[tuple[str, Request]]:
    """Every request and sub-request, each with its path below the claim's spec."""
    for index, request in enumerate(spec.devices.requests):
        path = f"devices.requests[{index}]"
        if request.exactly is not None:
            yield f"{path}.exactly", request.exactly
        for sub_index, sub in enumerate(request.first_available):
            yield f"{path}.firstAvailable[{sub_index}]", sub


def expressions(selectors: Iterable[DeviceSelector]) -> list[str]:
    """The selectors' CEL expressions."""
    return [selector.cel.expression for selector in selectors if selector.cel is not None]


def may_serve(request: Request, device_class: DeviceClass | None, drivers: Iterable[str]) -> bool:
    """Whether a device of one of the drivers may match the request's and its class's selectors.

    In doubt yes. A selector that does not compile is refused in the review of its own object, and counts as matching here.
    """
    texts = expressions(request.selectors) + ([] if device_class is None else expressions(device_class.spec.selectors))
    return _may_match(tuple(texts), tuple(drivers))


@lru_cache(maxsize=256)
def _may_match(texts: tuple[str, ...], drivers: tuple[str, ...]) -> bool:
    sound = [text for text in texts if _compiles(text)]
    return any(may_select(sound, driver) for driver in drivers)


def _compiles(text: str) -> bool:
    try:
        compile_selector(text)
    except CompileError:
        return False
    return True
