"""The schema of a node profile: the YAML file of a node's GPUs, field by field.

`gpu` holds what all GPUs have in common, each of `gpus` what is its own; an unknown field is refused. `mig` is the name
of a table under mig/, or the MIG profiles themselves.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import dataclasses
from typing import Annotated, Self

import msgspec

from fairlead.driver.backend.types import MigProfile

_MIB = 1024 * 1024

Count = Annotated[int, msgspec.Meta(ge=0)]
Minor = Annotated[int, msgspec.Meta(ge=0, le=255)]


class _Struct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    pass


class MigProfileSpec(_Struct, frozen=True, kw_only=True):
    name: str
    id: Count
    compute_slices: Annotated[int, msgspec.Meta(ge=1, le=16)]
    memory_slices: Annotated[int, msgspec.Meta(ge=1, le=16)]
    starts: tuple[Count, ...]
    memory_mib: Count | None = msgspec.field(default=None, name="memoryMiB")
    multiprocessors: Count | None = None
    copy_engines: Count | None = None
    decoders: Count | None = None
    encoders: Count | None = None
    jpeg_engines: Count | None = None
    ofa_engines: Count | None = None

    @classmethod
    def of(cls, profile: MigProfile) -> Self:
        fields = dataclasses.asdict(profile)
        return cls(memory_mib=to_mib(fields.pop("memory_bytes")), **fields)

    def to_profile(self) -> MigProfile:
        fields = msgspec.structs.asdict(self)
        return MigProfile(memory_bytes=to_bytes(fields.pop("memory_mib")), **fields)


class MigTable(_Struct, frozen=True, kw_only=True):
    product: str
    multiprocessors: Count | None = None
    profiles: tuple[MigProfileSpec, ...]


class NvLinkSpec(_Struct, frozen=True, kw_only=True):
    """`switched`: the links end at NVSwitches, not at other GPUs."""

    version: Count | None = None
    links: Count = 0
    switched: bool = False


class GpuSpec(_Struct, frozen=True, kw_only=True):
    """One GPU, or what all of them have in common (then without minor)."""

    minor: Minor | None = None
    uuid: str | None = None
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    cuda_compute_capability: str | None = None
    memory_mib: Count | None = msgspec.field(default=None, name="memoryMiB")
    multiprocessors: Count | None = None
    addressing_mode: str | None = None
    pci_device_id: Annotated[str, msgspec.Meta(pattern="^0x[0-9A-F]{8}$")] | None = None
    pci_bus_id: str | None = None
    pcie_root: str | None = None
    numa_node: Count | None = None
    rail: Count | None = None
    clique: str | None = None
    nvlink: NvLinkSpec | None = None
    mig: str | tuple[MigProfileSpec, ...] | None = None
    mig_enabled: bool = False
    mig_devices: tuple[str, ...] = ()


# Those that mean the same as the field of that name of types.Gpu.
SAME_FIELDS = (
    "product_name",
    "brand",
    "architecture",
    "cuda_compute_capability",
    "addressing_mode",
    "pci_device_id",
    "pci_bus_id",
    "pcie_root",
    "numa_node",
    "rail",
    "clique",
)


class NodeProfile(_Struct, frozen=True, kw_only=True):
    """The document. `nvlink_islands` lists minors that are connected all to all."""

    description: str = ""
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    gpu: GpuSpec = GpuSpec()
    gpus: tuple[GpuSpec, ...] = ()
    nvlink_islands: tuple[tuple[Minor, ...], ...] = ()


def to_bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * _MIB


def to_mib(size_bytes: int | None) -> int | None:
    """Whole MiB, rounded down."""
    return None if size_bytes is None else size_bytes // _MIB
