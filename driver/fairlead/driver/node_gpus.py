"""The GPUs of the node as the driver's parts share them: the hardware, what watches it, and what prepares claims on it."""

from __future__ import annotations

import dataclasses

from fairlead.driver.backend.interface import Backend
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.preparer import Preparer
from fairlead.driver.publish.monitor import Drains, HardwareMonitor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """`backend` is called in `threads`: it blocks."""

    backend: Backend
    threads: Threads
    drains: Drains
    monitor: HardwareMonitor
    preparer: Preparer
