"""The nodes of the MIG trace as the driver would publish them: dynamic (every placement, over counters) or static (cut beforehand).

Hardware comes from the bundled node profiles, devices and counters from the driver's own builder, so the engine and the
baselines obey the rules that a cluster has. A whole GPU counts as many compute slices as its largest profile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.mig.layouts import Layout
from fairlead.cli.simulate.trace import TraceError
from fairlead.driver.backend import geometry, profiles
from fairlead.driver.backend.profiles import ProfileError
from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigProfile
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import SliceBody

NODES_MAX = 2_000
NODE = "mig-node"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Nodes of one kind."""

    profile: str  # name of the bundled node profile
    gpus: tuple[Gpu, ...]  # uncut

    @property
    def sizes(self) -> tuple[MigProfile, ...]:
        return self.gpus[0].mig_profiles

    @property
    def slices_per_gpu(self) -> int:
        return geometry.compute_slices(self.sizes)

    @property
    def whole_gpus(self) -> bool:
        """Whether a GPU that is not cut can be given whole: not where MIG mode changes with a reset only."""
        return self.gpus[0].mig_mutable

    def published(self, layouts: Sequence[Layout] | None) -> tuple[SliceBody, ...]:
        """The slices of one node: dynamic without `layouts`, else each GPU cut as its layout says."""
        gpus = self.gpus
        if layouts is not None:
            gpus = tuple(_cut(gpu, layout) for gpu, layout in zip(gpus, layouts, strict=True))
        dynamic = frozenset() if layouts is not None else frozenset(gpu.uuid for gpu in gpus)
        return slices.build(Inventory(gpus=gpus), slices.Facts(partitionable=dynamic)).slices


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which nodes, in order."""

    nodes: tuple[Hardware, ...]

    @property
    def capacity(self) -> int:
        """Compute slices."""
        return sum(node.slices_per_gpu * len(node.gpus) for node in self.nodes)

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    def counts(self) -> Mapping[str, int]:
        """Nodes of each profile."""
        found: dict[str, int] = {}
        for node in self.nodes:
            found[node.profile] = found.get(node.profile, 0) + 1
        return found


def parse_cluster(texts: Sequence[str]) -> Cluster:
    """`hgx-h100=16`: so many nodes of that bundled profile, in the order given. Raises TraceError."""
    nodes: list[Hardware] = []
    for text in texts:
        name, equals, number = text.strip().partition("=")
        if not equals or not number.isdecimal() or not int(number):
            raise TraceError(f"--mig-nodes {text!r}: write PROFILE=NUMBER, such as hgx-h100=16")
        nodes += [_hardware(name)] * min(int(number), NODES_MAX + 1)
        if len(nodes) > NODES_MAX:
            raise TraceError(f"--mig-nodes {text!r}: more than {NODES_MAX:,} nodes; write fewer")
    return Cluster(tuple(nodes))


@lru_cache(maxsize=64)
def _hardware(name: str) -> Hardware:
    able = [each for each in profiles.known() if _cuttable(each)]
    if name not in able:
        why = "has no GPU that MIG can cut" if name in profiles.known() else "is no bundled node profile"
        raise TraceError(f"--mig-nodes {name!r}: {why}; write one of {', '.join(able)}")
    return Hardware(name, _cuttable(name))


@lru_cache(maxsize=64)
def _cuttable(name: str) -> tuple[Gpu, ...]:
    """Its GPUs, whatever the profile says of their cut: all of them with MIG, and alike; else none."""
    try:
        found = [gpu for gpu, _ in profiles.gpus(profiles.load(name), node=NODE)]
    except ProfileError as error:
        raise TraceError(f"--mig-nodes {name!r}: {error}") from None
    if len({gpu.mig_profiles for gpu in found}) != 1 or not found[0].mig_profiles:
        return ()
    return tuple(dataclasses.replace(gpu, mig_enabled=not gpu.mig_mutable, mig_devices=()) for gpu in found)


def _cut(gpu: Gpu, layout: Layout) -> Gpu:
    """A GPU with the MIG devices of a layout; whole, with MIG mode off, where that is empty."""
    devices = tuple(
        MigDevice(
            uuid=f"MIG-{gpu.uuid}-{number}",
            parent_uuid=gpu.uuid,
            parent_minor=gpu.minor,
            profile=profile,
            start=start,
            gi_id=number + 1,
            ci_id=0,
        )
        for number, (profile, start) in enumerate(layout)
    )
    return dataclasses.replace(gpu, mig_enabled=bool(layout), mig_devices=devices)
