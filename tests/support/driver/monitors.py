"""A HardwareMonitor with what it is made of, for tests that need no whole driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.driver.publish.known_faults import KnownFaults
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.driver.publish.slices import Offer

if TYPE_CHECKING:
    from fairlead.driver.backend.interface import Backend
    from fairlead.driver.common.threads import Threads

ON_DEMAND = Offer(dynamic_mig=True)


def monitor_of(backend: Backend, threads: Threads, **options: Any) -> HardwareMonitor:
    """`options` as of HardwareMonitor."""
    return HardwareMonitor(backend, threads, KnownFaults(), pool="n1", **options)
