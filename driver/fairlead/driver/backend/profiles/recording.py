"""An inventory as a node profile, for a bug report or for simulation elsewhere: the inverse of loading.py.

What all GPUs have in common is written once. UUIDs are left out unless they are asked for, so that a profile does not
identify its node. Pure. Keeps: the profile's simulated inventory is the recorded one, except for UUIDs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from fairlead.driver.backend.profiles.schema import (
    SAME_FIELDS,
    GpuSpec,
    MigProfileSpec,
    NodeProfile,
    NvLinkSpec,
    to_mib,
)
from fairlead.driver.backend.types import Gpu, Inventory, NvLink

_OWN = {"minor", "uuid", "mig_enabled", "mig_devices"}


def record(inventory: Inventory, *, description: str = "", uuids: bool = False) -> NodeProfile:
    """The profile of this inventory. Memory is rounded down to whole MiB."""
    specs = [_gpu(gpu, uuids=uuids) for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.minor)]
    common: dict[str, Any] = {}
    for field in (f for f in GpuSpec.__struct_fields__ if f not in _OWN):
        values = [getattr(spec, field) for spec in specs]
        if len(values) > 1 and values[0] is not None and all(value == values[0] for value in values):
            common[field] = values[0]
    return NodeProfile(
        description=description,
        driver_version=inventory.driver_version,
        cuda_driver_version=inventory.cuda_driver_version,
        gpu=GpuSpec(**common),
        gpus=tuple(msgspec.structs.replace(spec, **dict.fromkeys(common)) for spec in specs),
        nvlink_islands=tuple(_cliques(inventory.gpus)),
    )


def to_yaml(profile: NodeProfile) -> str:
    """The profile as a file for `--backend simulated:FILE`; small maps on one line each."""
    return yaml.safe_dump(msgspec.to_builtins(profile), sort_keys=False, default_flow_style=None, width=160)


def _gpu(gpu: Gpu, *, uuids: bool) -> GpuSpec:
    return GpuSpec(
        minor=gpu.minor,
        uuid=gpu.uuid if uuids else None,
        memory_mib=to_mib(gpu.memory_bytes),
        multiprocessors=gpu.multiprocessors,
        **{field: getattr(gpu, field) for field in SAME_FIELDS},
        nvlink=None if gpu.nvlink is None else _nvlink(gpu.nvlink),
        mig=tuple(MigProfileSpec.of(profile) for profile in gpu.mig_profiles) or None,
        mig_enabled=bool(gpu.mig_enabled),
        mig_devices=tuple(f"{mig.profile.name}@{mig.start}" for mig in gpu.mig_devices),
    )


def _nvlink(nvlink: NvLink) -> NvLinkSpec:
    return NvLinkSpec(version=nvlink.version, links=nvlink.links, switched=nvlink.switched)


def _cliques(gpus: Iterable[Gpu]) -> list[tuple[int, ...]]:
    """Cliques of minors that together hold every connection; a whole island is one clique."""
    edges = {(min(gpu.minor, peer), max(gpu.minor, peer)) for gpu in gpus if gpu.nvlink for peer in gpu.nvlink.peers}
    found: list[tuple[int, ...]] = []
    while edges:
        first = min(edges)
        clique = list(first)
        for minor in sorted({end for edge in edges for end in edge} - set(clique)):
            if all((min(minor, member), max(minor, member)) in edges for member in clique):
                clique.append(minor)
        found.append(tuple(sorted(clique)))
        edges -= {(a, b) for a in clique for b in clique}
    return found
