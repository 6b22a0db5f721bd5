"""The names of devices within a node's pool: `gpu-3`, `gpu-3-mig-1g10gb-19-0`.

A name is written when the device is published and parsed when a claim names it. It holds the device's place (minor,
profile, placement): minors survive restarts, NVML's indexes do not. Source: NVIDIA's DRA driver uses the same names.
"""

from __future__ import annotations

import dataclasses
import re

from fairlead.driver.backend.types import Gpu, MigProfile

_GPU = re.compile(r"gpu-(0|[1-9][0-9]{0,8})")
_MIG = re.compile(r"gpu-(0|[1-9][0-9]{0,8})-mig-([a-z0-9-]+)-([0-9]{1,9})-([0-9]{1,9})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a named device. `profile_id` and `start` are None for a whole GPU."""

    minor: int
    profile_id: int | None = None
    start: int | None = None


def gpu_name(gpu: Gpu) -> str:
    return f"gpu-{gpu.minor}"


def mig_name(parent_minor: int, profile: MigProfile, start: int) -> str:
    """Dots are dropped, other characters that a DNS label must not have become dashes: `1g.10gb+me` is `1g10gb-me`."""
    size = re.sub(r"[^a-z0-9]", "-", profile.name.lower().replace(".", ""))
    return f"gpu-{parent_minor}-mig-{size}-{profile.id}-{start}"


def counter_set_name(gpu: Gpu) -> str:
    return f"gpu-{gpu.minor}-counter-set"


def parse(name: str) -> Place | None:
    """The place in a name, or None when the name is not of this form."""
    if match := _GPU.fullmatch(name):
        return Place(minor=int(match[1]))
    if match := _MIG.fullmatch(name):
        return Place(minor=int(match[1]), profile_id=int(match[3]), start=int(match[4]))
    return None
