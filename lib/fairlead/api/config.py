"""GpuConfig and MigDeviceConfig: the opaque parameters of claims and classes that say how a device is shared.

Webhook and driver validate with this one function, so the webhook admits exactly the configurations that the driver can
apply. The fields are the NVIDIA driver's (resource.nvidia.com/v1beta1): a claim is ported by changing the API group.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fairlead.api import names
from fairlead.api.base import ManifestError, Part, Quantity, checked
from fairlead.api.capabilities import CAPABILITIES, DEFAULT_CAPABILITIES, Capability
from fairlead.api.nulls import without_nulls

Interval = Literal["Default", "Short", "Medium", "Long"]
Strategy = Literal["TimeSlicing", "MPS"]
Percentage = Annotated[int, Field(ge=1, le=100)]
MEMORY_MIN = 1024 * 1024
_FACTORS = {"": Decimal(1)} | {
    suffix: factor
    for power, letter in enumerate("kMGTPE", 1)
    for suffix, factor in ((letter, Decimal(1000**power)), (f"{letter.upper()}i", Decimal(1024**power)))
} | {letter: Decimal(10) ** -power for power, letter in ((3, "m"), (6, "u"), (9, "n"))}  # fmt: skip


def _mps_memory(limits: dict[str, Any]) -> dict[str, Any]:
    for key in limits:
        if not (key.isascii() and key.isdigit()) and not key.startswith(("GPU-", "MIG-")):
            raise ValueError(f"{key!r} names no device: use an index within the claim, such as '0', or a UUID")
    return limits


def _at_least_a_mebibyte(limit: int | str) -> int | str:
    number, suffix = re.fullmatch(r"([^a-zA-Z]*)(.*)", str(limit), re.DOTALL).groups()  # type: ignore[union-attr]
    try:
        size = Decimal(number) * (_FACTORS[suffix] if suffix in _FACTORS else Decimal(f"1{suffix}"))
    except ArithmeticError:
        raise ValueError(f"{limit!r} is no size of a memory: write a number such as '10Gi'") from None
    if size < MEMORY_MIN:
        raise ValueError(f"{limit!r} is less than MPS counts in: write at least 1Mi")
    return limit


Capabilities = Annotated[tuple[Capability, ...], Field(min_length=1, max_length=len(CAPABILITIES))]
MpsMemory = Annotated[Quantity, AfterValidator(_at_least_a_mebibyte)]


class TimeSlicingConfig(Part):
    """How long each process uses the GPU before the next one does."""

    interval: Interval = "Default"
    """Length of a time slice, as the driver's compute policy names it."""


class MpsConfig(Part):
    """Limits of the MPS daemon that serves the claim's containers."""

    default_active_thread_percentage: Percentage | None = None
    """Share of the multiprocessors that one client may use, in percent."""
    default_pinned_device_memory_limit: MpsMemory | None = None
    """Device memory that one client may pin."""
    default_per_device_pinned_memory_limit: Annotated[dict[str, MpsMemory], AfterValidator(_mps_memory)] = Field(
        default_factory=dict, max_length=32
    )
    """The same for single devices, by index or UUID; overrides the default."""
    multi_user: bool = False
    """Whether clients of different users may share the daemon (compute capability 7.0 and later)."""


class GpuSharing(Part):
    """How the containers of a claim share its GPUs."""

    strategy: Strategy
    """TimeSlicing: one process at a time, each with the whole GPU. MPS: all at once, each with a part of it."""
    time_slicing_config: TimeSlicingConfig | None = None
    """With strategy TimeSlicing only."""
    mps_config: MpsConfig | None = None
    """With strategy MPS only."""

    @model_validator(mode="after")
    def _config_fits_strategy(self) -> Self:
        if self.strategy == "MPS" and self.time_slicing_config is not None:
            raise ValueError("timeSlicingConfig: means nothing with strategy MPS: remove it")
        if self.strategy == "TimeSlicing" and self.mps_config is not None:
            raise ValueError("mpsConfig: means nothing with strategy TimeSlicing: remove it")
        return self


class MigSharing(Part):
    """How the containers of a claim share its MIG devices."""

    strategy: Strategy
    """TimeSlicing: one process at a time, as without it, since their length is the whole GPU's. MPS: all at once."""
    time_slicing_config: TimeSlicingConfig | None = None
    """With strategy TimeSlicing only, and with interval Default."""
    mps_config: MpsConfig | None = None
    """With strategy MPS only."""

    @model_validator(mode="after")
    def _config_fits_strategy(self) -> Self:
        if self.strategy == "MPS" and self.time_slicing_config is not None:
            raise ValueError("timeSlicingConfig: means nothing with strategy MPS: remove it")
        if self.strategy == "TimeSlicing" and self.mps_config is not None:
            raise ValueError("mpsConfig: means nothing with strategy TimeSlicing: remove it")
        interval = self.time_slicing_config.interval if self.time_slicing_config else "Default"
        if interval != "Default":
            raise ValueError(
                f"timeSlicingConfig: interval: {interval!r} cannot be set on a MIG device, since NVIDIA's driver has one length "
                "for a whole GPU: write Default, or ask for a whole GPU"
            )
        return self


class GpuConfig(Part):
    """Opaque parameters for whole GPUs."""

    api_version: Literal["gpu.fairlead.dev/v1alpha1"]
    kind: Literal["GpuConfig"]
    sharing: GpuSharing | None = None
    """Absent: as the config of the class says, else as the driver's default for shares, else without limits."""
    nccl_topology: bool = False
    """Whether containers get a topology file of the claim's GPUs for NCCL, and NCCL_TOPO_FILE."""
    capabilities: Capabilities = Field(default=DEFAULT_CAPABILITIES)
    """Which libraries and programs of NVIDIA's driver containers get."""


class MigDeviceConfig(Part):
    """Opaque parameters for MIG devices."""

    api_version: Literal["gpu.fairlead.dev/v1alpha1"]
    kind: Literal["MigDeviceConfig"]
    sharing: MigSharing | None = None
    """Absent: as the config of the class says, else as the driver's default for shares, else without limits."""
    capabilities: Capabilities = Field(default=DEFAULT_CAPABILITIES)
    """Which libraries and programs of NVIDIA's driver containers get."""


DeviceConfig = GpuConfig | MigDeviceConfig
_KINDS: dict[str, type[GpuConfig] | type[MigDeviceConfig]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
}


def _shown(value: object) -> str:
    """A value for a message; one that is no text may be long, or nested too deeply to be shown."""
    try:
        return repr(value[:64] if isinstance(value, str) else value)[:64]
    except RecursionError:
        return f"a {type(value).__name__}"


def decode(parameters: object, *, subject: str, strict: bool = True) -> DeviceConfig:
    """The configuration in opaque parameters of our driver. Raises ManifestError.

    `subject` begins each message, such as `ResourceClaim ml/train: spec…parameters`. A null is an absent field. Without `strict` unknown fields are passed
    over: a checkpoint may have been written by a newer version.
    """
    if not isinstance(parameters, Mapping):
        raise ManifestError(subject, (f"{type(parameters).__name__} is no configuration: write an object",))
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != names.CONFIG_API_VERSION:
        raise ManifestError(subject, (f"apiVersion: {_shown(version)} is unknown: write {names.CONFIG_API_VERSION}",))
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ManifestError(subject, (f"kind: {_shown(kind)} is none of {', '.join(_KINDS)}",))
    try:
        return checked(model, without_nulls(parameters), subject=subject, strict=strict)
    except RecursionError:
        raise ManifestError(subject, ("is nested too deeply: a configuration has at most four levels",)) from None
