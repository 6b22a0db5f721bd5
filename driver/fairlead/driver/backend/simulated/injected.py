"""What is wrong with simulated hardware now, and how busy it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fairlead.driver.backend.simulated.fault_file import Load, MemoryErrors
from fairlead.driver.backend.types import Process, RecoveryAction, ThrottleReason


@dataclasses.dataclass(slots=True)
class InjectedFaults:
    """The faults and the load of the hardware now, set by tests, by `fairlead fault` and `fairlead load`.

    `lost` holds minors, `recovery` recovery actions by minor, `xids` (minor, code) not yet reported, `busy` (minor,
    start) of instances with clients, `loads` the load by device's name, `held` that of the other devices which claims
    hold, `throttled` and `memory_errors` are by minor. `processes` are those on a GPU, by minor; resets of the minors in
    `reset_fails` fail. `before` is called with operation and minor before each
    operation: it may sleep or raise.
    """

    lost: set[int] = dataclasses.field(default_factory=set)
    recovery: dict[int, RecoveryAction] = dataclasses.field(default_factory=dict)
    xids: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    busy: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    loads: dict[str, Load] = dataclasses.field(default_factory=dict)
    held: Load | None = None
    throttled: dict[int, frozenset[ThrottleReason]] = dataclasses.field(default_factory=dict)
    memory_errors: dict[int, MemoryErrors] = dataclasses.field(default_factory=dict)
    processes: dict[int, tuple[Process, ...]] = dataclasses.field(default_factory=dict)
    reset_fails: set[int] = dataclasses.field(default_factory=set)
    before: Callable[[str, int], None] | None = None
