"""The state of simulated hardware: MIG instances, time slices and compute modes, over restarts of the driver.

Real hardware keeps these until the node reboots; a file stands for that. A file of another profile, or one that cannot
be read, is no memory.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import dataclasses
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fairlead.driver.backend.types import ComputeMode, TimeSlice
from fairlead.driver.common import files

_UUID_SPACE = uuid.UUID("1f4d9f5c-2a3b-5d47-8a36-6d5a3a1d9c02")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance with the one compute instance that fills it."""

    profile_id: int
    start: int
    gi_id: int
    ci_id: int
    uuid: str


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    made: int
    instances: dict[str, list[Instance]]
    time_slices: dict[int, TimeSlice] = {}
    compute_modes: dict[int, ComputeMode] = {}
    mig_modes: dict[int, bool] = {}


class HardwareState:
    """`instances` are by GPU UUID, `time_slices`, `compute_modes` and `mig_modes` (where
    they are other than the profile's) by minor. Not locked. `profiles`: IDs by GPU UUID.

    `created` counts all instances ever created, so that no UUID is used twice.
    """

    def __init__(self, profiles: Mapping[str, frozenset[int]], *, file: Path | None) -> None:
        self._profiles = profiles
        self.instances: dict[str, list[Instance]] = {gpu_uuid: [] for gpu_uuid in profiles}
        self.time_slices: dict[int, TimeSlice] = {}
        self.compute_modes: dict[int, ComputeMode] = {}
        self.mig_modes: dict[int, bool] = {}
        self._created = 0
        self._file = file

    def add(self, gpu_uuid: str, profile_id: int, start: int) -> Instance:
        """A new instance; like a GPU's, its ID is the lowest that is free."""
        taken = {instance.gi_id for instance in self.instances[gpu_uuid]}
        gi_id = next(number for number in range(1, 16) if number not in taken)
        self._created += 1
        made = uuid.uuid5(_UUID_SPACE, f"{gpu_uuid}/{self._created}")
        instance = Instance(profile_id=profile_id, start=start, gi_id=gi_id, ci_id=0, uuid=f"MIG-{made}")
        self.instances[gpu_uuid].append(instance)
        return instance

    def save(self) -> None:
        if self._file is None:
            return
        state = _Saved(
            made=self._created,
            instances=self.instances,
            time_slices=self.time_slices,
            compute_modes=self.compute_modes,
            mig_modes=self.mig_modes,
        )
        files.write(self._file, msgspec.json.encode(state), durable=False)

    def load(self) -> None:
        """Replace this state by that of an earlier process, where there is one of the same GPUs."""
        if self._file is None:
            return
        try:
            saved = msgspec.json.decode(self._file.read_bytes(), type=_Saved)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if saved.instances.keys() == self.instances.keys() and all(
            instance.profile_id in self._profiles[gpu] for gpu, found in saved.instances.items() for instance in found
        ):
            self.instances, self._created = saved.instances, saved.made
            self.time_slices, self.compute_modes = saved.time_slices, saved.compute_modes
            self.mig_modes = saved.mig_modes
