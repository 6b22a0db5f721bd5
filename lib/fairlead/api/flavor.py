"""Flavor: a kind of device, and the measure in which queues count it.

A platform engineer names kinds of devices with it, and writes quotas in their measures: "8 H100", "half an A100", "640Gi".
The selector is text here; `fairlead.cel` compiles it and the webhook refuses one that does not compile.
"""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from fairlead.api.base import CONDITIONS, CelExpression, Condition, CustomResource, Part, Quantity, is_dns_subdomain

CAPACITY_NAME = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z_][A-Za-z0-9_]{0,31}"
_CAPACITY_NAME = re.compile(CAPACITY_NAME)

Measure = Literal["Devices", "Share", "Capacity"]


class FlavorSpec(Part):
    """Which devices, and how they are counted."""

    device_selector: CelExpression
    """CEL over `device`, as in a DeviceClass: the devices that are of this flavor."""
    measure: Measure = "Devices"
    """Devices: each counts 1. Share: a MIG device counts as its share of the whole GPU. Capacity: the sum of capacityName."""
    capacity_name: str | None = Field(
        default=None, max_length=96, json_schema_extra={"pattern": f"^{CAPACITY_NAME}$", "minLength": 1}
    )
    """The capacity that is counted, such as `memory`; with measure Capacity only."""

    @field_validator("device_selector")
    @classmethod
    def _selector_says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("is blank: write a CEL expression such as device.driver == 'gpu.fairlead.dev'")
        return text

    @field_validator("capacity_name")
    @classmethod
    def _qualified_name(cls, text: str | None) -> str | None:
        if text is None:
            return None
        domain, slash, _ = text.rpartition("/")
        if not _CAPACITY_NAME.fullmatch(text) or (slash and (len(domain) > 63 or not is_dns_subdomain(domain))):
            raise ValueError(f"{text!r} is no capacity name: use [domain/]identifier, such as memory")
        return text

    @model_validator(mode="after")
    def _capacity_is_named(self) -> Self:
        if self.measure == "Capacity" and self.capacity_name is None:
            raise ValueError("capacityName: is required with measure Capacity, such as capacityName: memory")
        if self.measure != "Capacity" and self.capacity_name is not None:
            raise ValueError(f"capacityName: means nothing with measure {self.measure}: remove it or use Capacity")
        return self


class FlavorStatus(Part):
    """Observed state. Written by the controller only."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    devices: int = Field(default=0, ge=0)
    """Published devices that the selector matches; partitions of a device count in addition to it."""
    total: Quantity = 0
    """Total in the cluster, in the flavor's measure; partitions of a device do not count in addition to it."""
    allocated: Quantity = 0
    """Allocated to gangs, in the flavor's measure."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and others with details."""


class Flavor(CustomResource):
    """A kind of device, chosen by CEL, and the measure in which queues count it."""

    kind: Literal["Flavor"] = "Flavor"
    spec: FlavorSpec
    """Which devices, and how they are counted."""
    status: FlavorStatus | None = None
    """Observed state. Written by the controller only."""
