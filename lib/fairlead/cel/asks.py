"""The requests of a claim, and whether a driver may serve them, judged by class and selectors alone.

Exists so that the webhook (which gates pods) and the controller (which allocates for them) agree on which claims are
managed. What that means where a class is missing is theirs to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from fairlead.cel.errors import CompileError
from fairlead.cel.managed import may_select
from fairlead.cel.selector import compile_selector
from fairlead.kube.resource import DeviceClass, DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec

Ask = ExactDeviceRequest | DeviceSubRequest


def asks(spec: ResourceClaimSpec) -> Iterator[tuple[str, Ask]]:
    """Every request and sub-request with its path below the claim's spec."""
    for index, request in enumerate(spec.devices.requests):
        path = f"devices.requests[{index}]"
        if request.exactly is not None:
            yield f"{path}.exactly", request.exactly
        for sub_index, sub in enumerate(request.first_available):
            yield f"{path}.firstAvailable[{sub_index}]", sub


def expressions(selectors: Iterable[DeviceSelector]) -> list[str]:
    """The CEL texts of some selectors."""
    return [selector.cel.expression for selector in selectors if selector.cel is not None]


def may_serve(ask: Ask, device_class: DeviceClass | None, drivers: Iterable[str]) -> bool:
    """Whether a device of one of the drivers could pass the request's and its class's selectors.

    In doubt yes: text that does not compile is refused by its own object's review, and rules nothing out here.
    """
    texts = expressions(ask.selectors) + ([] if device_class is None else expressions(device_class.spec.selectors))
    return _may_pass(tuple(texts), tuple(drivers))


@lru_cache(maxsize=256)
def _may_pass(texts: tuple[str, ...], drivers: tuple[str, ...]) -> bool:
    sound = [text for text in texts if _compiles(text)]
    return any(may_select(sound, driver) for driver in drivers)


def _compiles(text: str) -> bool:
    try:
        compile_selector(text)
    except CompileError:
        return False
    return True
