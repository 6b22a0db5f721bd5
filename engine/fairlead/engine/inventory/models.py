"""The model of a device: its product and, of a part such as a MIG device, which part of it.

Read from the attributes that `api.drivers` names for the device's driver, so that GPUs of NVIDIA's driver and of ours that are one
product are one model. A network interface, or a GPU of a driver that is not known, has no product: all of these are one model.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api.drivers import DRIVERS, attributes_of

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device


class Model(NamedTuple):
    """Both are empty where the device has no product."""

    product: str = ""
    profile: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in self if part) or "devices without a product"


NO_MODEL = Model()


def model_of(device: Device) -> Model:
    """The device's model."""
    products, profile = _names(device.pool.driver)
    product = next((text for name in products if (text := _text(device, name))), "")
    return Model(product, _text(device, profile) if profile else "") if product else NO_MODEL


PRODUCTS = frozenset(known.qualified(name) for known in DRIVERS.values() for name in known.product)
"""The attributes that name a product."""


@lru_cache(maxsize=1024)
def _names(driver: str) -> tuple[tuple[str, ...], str]:
    """Qualified names of the attributes for the product, the first that a device has counts, and for the part."""
    known = attributes_of(driver)
    return tuple(map(known.qualified, known.product)), known.qualified(known.profile)


def _text(device: Device, name: str) -> str:
    value = device.attribute(name)
    return "" if value is None or value.string is None else value.string
