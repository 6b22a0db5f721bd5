"""A node's disk and hardware, on which drivers start, are killed at a chosen step, and start again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlead.driver.backend.interface import Backend
from fairlead.driver.backend.types import SharedLimits
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps_daemons import Daemons
from fairlead.driver.prepare.preparer import Gpus, Preparer
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.kube.resource import Device


class Killed(BaseException):
    """The process died here: nothing after it runs, no handler sees it."""


@dataclasses.dataclass
class Node:
    """Directories and hardware that outlive a driver process; `start` is a new process on them.

    `passed` is called with each step of prepare and unprepare; `published` are the devices in the node's slices;
    `own_daemons` take the place of MPS daemons that are processes; `closed` says why a GPU takes no claims.
    """

    path: Path
    backend: Backend
    dynamic: bool = False
    boot_id: str = "boot-1"
    passed: Callable[[str], None] | None = None
    device_metadata: bool = True
    shared_limits: SharedLimits = "none"
    own_daemons: Daemons | None = None
    closed: Callable[[str], str | None] = lambda _: None
    published: dict[str, Device] = dataclasses.field(default_factory=dict)
    _kill_at: str | None = None
    steps: list[str] = dataclasses.field(default_factory=list)

    def start(self) -> Preparer:
        """A driver that has taken up what the one before left."""
        preparer = self.fresh()
        self.recovery = preparer.recover()
        return preparer

    def fresh(self) -> Preparer:
        inventory = self.backend.inventory()
        cuttable = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.mig_profiles) if self.dynamic else frozenset()
        return Preparer(
            pool="n1",
            backend=self.backend,
            checkpoint=Checkpoint(self.path / "claims", boot_id=self.boot_id),
            cdi_files=self.cdi_files,
            cache=RecordCache(),
            gpus=Gpus(
                inventory=self.backend.inventory,
                partitionable=lambda: cuttable,
                closed=self.closed,
                shared_limits=self.shared_limits,
            ),
            metadata=Metadata(self.path / "metadata", enabled=self.device_metadata, published=lambda: self.published),
            daemons=self.daemons,
            on_step=self._passed,
        )

    @property
    def daemons(self) -> Daemons:
        return self.own_daemons or Daemons(self.path / "mps", self.backend.mps_program)

    @property
    def cdi_files(self) -> CdiFiles:
        return CdiFiles(self.path / "cdi")

    def _passed(self, step: str) -> None:
        self.steps.append(step)
        if self.passed is not None:
            self.passed(step)
        if step == self._kill_at:
            raise Killed(step)

    @contextlib.contextmanager
    def killed_at(self, step: str) -> Iterator[None]:
        """What runs inside dies when it has passed `step`. Fails when it never got there."""
        self._kill_at = step
        try:
            yield
        except Killed:
            return
        finally:
            self._kill_at = None
        raise AssertionError(f"never passed {step!r}, but {self.steps}")

    def leftovers(self) -> dict[str, list[str]]:
        """Everything that a claim can leave: records, CDI files, temporaries, MIG devices made on demand, daemons."""
        state = getattr(self.backend, "state", None)  # simulated hardware has one
        slices, modes = (state.time_slices, state.compute_modes) if state is not None else ({}, {})
        gpus = self.backend.inventory().gpus if self.dynamic else ()
        found = {
            what: [path.name for path in (self.path / what).glob("*")] for what in ("claims", "cdi", "mps", "metadata")
        }
        found["migs"] = [f"gpu-{gpu.minor}@{mig.start}" for gpu in gpus for mig in gpu.mig_devices]
        found["time slices"] = [
            f"gpu-{minor}: {interval}" for minor, interval in slices.items() if interval != "Default"
        ]
        found["compute modes"] = [f"gpu-{minor}: {mode}" for minor, mode in modes.items() if mode != "Default"]
        return {what: sorted(names) for what, names in found.items() if names}
