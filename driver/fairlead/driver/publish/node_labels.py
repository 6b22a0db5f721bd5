"""Node labels as GPU feature discovery makes them, for manifests and tools that choose nodes by `nvidia.com/gpu.product` and its like.

Written as a feature file of Node Feature Discovery, whose worker labels the node: the driver needs no right to change nodes. The
file says when it expires, so labels of a driver that is gone go, too. With strategy `single` the labels of GPUs are those of the
node's MIG devices, where all are of one profile; with `mixed` each profile has its own; with `none` MIG does not show.
Where a node has GPUs of several products, the labels are of the one of which there are most.
What the hardware does not report has no label.
Source: k8s-device-plugin docs/gpu-feature-discovery and internal/lm; NFD's local feature source (expiry-time).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead.api.mig_profiles import MigStrategy, in_resource
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile
from fairlead.driver.common import files
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish.attributes import is_single
from fairlead.kube import timestamps
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

FILE = "fairlead-gpu"
INTERVAL_S = 60.0
EXPIRES_S = 3600.0
_MIB = 2**20
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_GPU = "nvidia.com/gpu"


def labels(inventory: Inventory, strategy: MigStrategy = "none") -> dict[str, str]:
    """By full name, sorted; none without a GPU. Values that no label can have are left out."""
    gpus = [gpu for gpu in inventory.gpus if gpu.product_name]
    if not gpus:
        return {}
    found: dict[str, object] = _versions(inventory)
    found["nvidia.com/mig.capable"] = str(any(gpu.mig_enabled is not None for gpu in gpus)).lower()
    if strategy != "none":
        found["nvidia.com/mig.strategy"] = strategy
    if strategy == "mixed":
        found |= _whole([gpu for gpu in gpus if not gpu.mig_enabled])
        found |= _mixed(gpus)
    elif strategy == "single" and any(gpu.mig_enabled for gpu in gpus):
        found |= _single(gpus)
    else:
        found |= _whole(gpus)
    cliques = {gpu.clique for gpu in gpus}
    if len(cliques) == 1:
        found["nvidia.com/gpu.clique"] = cliques.pop()
    texts = {name: str(value).replace(" ", "-") for name, value in found.items() if value is not None}
    return {name: text for name, text in sorted(texts.items()) if _VALUE.fullmatch(text)}


def _versions(inventory: Inventory) -> dict[str, object]:
    """The older names beside the newer ones, as the original."""
    found: dict[str, object] = {}
    kinds = (
        ("driver", ("major", "minor", "rev"), ("major", "minor", "revision"), inventory.driver_version),
        ("runtime", ("major", "minor"), ("major", "minor"), inventory.cuda_driver_version),
    )
    for kind, older, newer, version in kinds:
        if version is None:
            continue
        found[f"nvidia.com/cuda.{kind}-version.full"] = version
        parts = version.split(".")
        found |= {f"nvidia.com/cuda.{kind}.{name}": part for name, part in zip(older, parts, strict=False)}
        found |= {f"nvidia.com/cuda.{kind}-version.{name}": part for name, part in zip(newer, parts, strict=False)}
    return found


def _whole(gpus: list[Gpu]) -> dict[str, object]:
    if not gpus:
        return {}
    product, count = Counter(gpu.product_name for gpu in gpus).most_common(1)[0]
    first = next(gpu for gpu in gpus if gpu.product_name == product)
    memory = first.memory_bytes
    return {
        f"{_GPU}.product": product,
        f"{_GPU}.count": count,
        f"{_GPU}.replicas": 1,
        f"{_GPU}.memory": None if memory is None else memory // _MIB,
        **_architecture(first),
    }


def _architecture(gpu: Gpu) -> dict[str, object]:
    major, _, minor = (gpu.cuda_compute_capability or "").partition(".")
    return {
        f"{_GPU}.family": gpu.architecture.lower() if gpu.architecture else None,
        f"{_GPU}.compute.major": major or None,
        f"{_GPU}.compute.minor": minor.partition(".")[0] or None,
    }


def _single(gpus: list[Gpu]) -> dict[str, object]:
    """Of the MIG devices, where every GPU is cut into devices of one and the same profile; else of an invalid kind, of which there are none."""
    devices = [device for gpu in gpus for device in gpu.mig_devices]
    if not is_single(gpus):
        invalid = {f"{_GPU}.{name}": 0 for name in ("count", "replicas", "memory")}
        return {f"{_GPU}.product": f"{gpus[0].product_name}-MIG-INVALID", **invalid, **_architecture(gpus[0])}
    return {
        f"{_GPU}.product": f"{gpus[0].product_name}-MIG-{in_resource(devices[0].profile.name)}",
        f"{_GPU}.count": len(devices),
        f"{_GPU}.replicas": 1,
        **_of_profile(_GPU, devices[0].profile),
        **_architecture(gpus[0]),
    }


def _mixed(gpus: list[Gpu]) -> dict[str, object]:
    found: dict[str, object] = {}
    counts: Counter[str] = Counter()
    for gpu in gpus:
        for device in gpu.mig_devices:
            resource = f"nvidia.com/mig-{in_resource(device.profile.name)}"
            counts[resource] += 1
            found[f"{resource}.product"] = f"{gpu.product_name}-MIG-{in_resource(device.profile.name)}"
            found[f"{resource}.replicas"] = 1
            found |= _of_profile(resource, device.profile)
    return {**found, **{f"{resource}.count": count for resource, count in counts.items()}}


def _of_profile(resource: str, profile: MigProfile) -> dict[str, object]:
    return {
        f"{resource}.memory": None if profile.memory_bytes is None else profile.memory_bytes // _MIB,
        f"{resource}.multiprocessors": profile.multiprocessors,
        f"{resource}.slices.gi": profile.compute_slices,
        f"{resource}.slices.ci": profile.compute_slices,
        f"{resource}.engines.copy": profile.copy_engines,
        f"{resource}.engines.decoder": profile.decoders,
        f"{resource}.engines.encoder": profile.encoders,
        f"{resource}.engines.jpeg": profile.jpeg_engines,
        f"{resource}.engines.ofa": profile.ofa_engines,
    }


def feature_file(found: Mapping[str, str], expires: float) -> bytes:
    """As Node Feature Discovery reads it; `expires`: unix seconds."""
    lines = [f"# +expiry-time={timestamps.seconds(expires)}", *(f"{name}={value}" for name, value in found.items())]
    return "".join(f"{line}\n" for line in lines).encode()


class NodeLabels:
    """Keeps the feature file current: written when labels change, and again long before it expires."""

    def __init__(
        self,
        directory: Path,
        strategy: MigStrategy,
        inventory: Callable[[], Inventory],
        threads: Threads,
        *,
        wall: Clock,
    ) -> None:
        self._path = directory / FILE
        self._strategy: MigStrategy = strategy
        self._inventory = inventory
        self._threads = threads
        self._wall = wall
        self._written: dict[str, str] | None = None
        self._expires = 0.0
        self._problem = ""

    async def run(self) -> None:
        """Never returns. A file that cannot be written is said once, and tried again."""
        while True:
            await self.update()
            await asyncio.sleep(INTERVAL_S)

    async def update(self) -> None:
        found, now = labels(self._inventory(), self._strategy), self._wall()
        if found == self._written and self._expires - now > EXPIRES_S / 2:
            return
        try:
            await self._threads.run(files.write, self._path, feature_file(found, now + EXPIRES_S), mode=0o644)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("node labels are not written: %s; is the directory of --node-labels-dir there?", error)
            self._problem = str(error)
            return
        self._written, self._expires, self._problem = found, now + EXPIRES_S, ""
