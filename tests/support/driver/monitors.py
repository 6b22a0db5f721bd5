"""A HardwareMonitor with what it is made of, for tests that need no whole driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.driver.publish.known_faults import KnownFaults
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.driver.publish.polling import Poller
from fairlead.driver.publish.pool_builder import PoolBuilder
from fairlead.driver.publish.slices import Offer
from fairlead.kube.timing import REAL, Time

if TYPE_CHECKING:
    from fairlead.driver.backend.interface import Backend
    from fairlead.driver.common.threads import Threads

PLAIN = Offer()
ON_DEMAND = Offer(dynamic_mig=True)


def monitor_of(
    backend: Backend | Poller,
    threads: Threads,
    *,
    offer: Offer = PLAIN,
    timing: Time = REAL,
    interval_s: float = 5.0,
    **building: Any,
) -> HardwareMonitor:
    """`building` as of PoolBuilder."""
    poller = backend if isinstance(backend, Poller) else Poller(backend, threads, wall=timing.wall)
    builder = PoolBuilder(offer, **building)
    return HardwareMonitor(poller, builder, KnownFaults(), pool="n1", interval_s=interval_s, timing=timing)
