"""How far users may go before and keep devices from others: `maxMinRuntime`, `maxCheckpointGrace`, `maxTerminationGrace`, `maxPriority`,
`lostNodeTimeout`.

Queues and TenancyPolicies set them. For one gang the tightest counts: of its queue, of the queues above that, and of the Enforce
policies that select its namespace. Where none of these sets one, `DEFAULTS` does. The webhook refuses what is beyond; the
controller counts it as the bound, so that pods which the webhook has not seen gain nothing. Pure.
Example: queue red sets maxMinRuntime 2h, the queue above it 30m: `min-runtime: 9999999999d` counts as 30m.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from fairlead.api.durations import duration_s


class Bound(msgspec.Struct, frozen=True, gc=False):
    """`source` is for messages: where it is set."""

    seconds: float
    source: str


class PriorityBound(msgspec.Struct, frozen=True, gc=False):
    value: int
    source: str


class Bounds(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """None: not set here."""

    min_runtime: Bound | None = None
    checkpoint_grace: Bound | None = None
    termination_grace: Bound | None = None
    lost_node: Bound | None = None
    priority: PriorityBound | None = None

    def within(self, other: "Bounds") -> "Bounds":
        """The tighter of each; of equal ones that of `self`."""
        if other is NO_BOUNDS or self is other:
            return self
        if self is NO_BOUNDS:
            return other
        return Bounds(
            min_runtime=_tighter(self.min_runtime, other.min_runtime),
            checkpoint_grace=_tighter(self.checkpoint_grace, other.checkpoint_grace),
            termination_grace=_tighter(self.termination_grace, other.termination_grace),
            lost_node=_tighter(self.lost_node, other.lost_node),
            priority=min(
                (each for each in (self.priority, other.priority) if each), key=lambda each: each.value, default=None
            ),
        )

    def min_runtime_of(self, asked_s: float | None, queue_s: float = 0.0) -> float:
        """How long a gang is protected from its start: what its pods ask, else what its queue says; both at most the bound.

        Without a bound a queue's own minRuntime may be longer than the default, and its gangs may then ask for as much.
        """
        bound = self.min_runtime
        if bound is None:
            return queue_s if asked_s is None else min(asked_s, max(DEFAULTS.min_runtime_s, queue_s))
        return min(queue_s if asked_s is None else asked_s, bound.seconds)

    @property
    def checkpoint_grace_s(self) -> float:
        return DEFAULTS.checkpoint_grace_s if self.checkpoint_grace is None else self.checkpoint_grace.seconds

    @property
    def termination_grace_s(self) -> float:
        return DEFAULTS.termination_grace_s if self.termination_grace is None else self.termination_grace.seconds


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    min_runtime_s: float = 3600.0
    checkpoint_grace_s: float = 600.0
    termination_grace_s: float = 600.0


DEFAULTS = _Defaults()
"""Where nothing is set: an hour, ten minutes, ten minutes."""


class BoundsSpec(Protocol):
    """What the specs of Queue and TenancyPolicy have in common; texts are durations."""

    @property
    def max_min_runtime(self) -> str | None: ...
    @property
    def max_checkpoint_grace(self) -> str | None: ...
    @property
    def max_termination_grace(self) -> str | None: ...
    @property
    def lost_node_timeout(self) -> str | None: ...
    @property
    def max_priority(self) -> int | None: ...


def read_bounds(spec: BoundsSpec, owner: str) -> Bounds:
    """`owner` names the object, such as `Queue red`. NO_BOUNDS itself where nothing is set."""
    found = Bounds(
        min_runtime=_bound(spec.max_min_runtime, f"maxMinRuntime of {owner}"),
        checkpoint_grace=_bound(spec.max_checkpoint_grace, f"maxCheckpointGrace of {owner}"),
        termination_grace=_bound(spec.max_termination_grace, f"maxTerminationGrace of {owner}"),
        lost_node=_bound(spec.lost_node_timeout, f"lostNodeTimeout of {owner}"),
        priority=None if spec.max_priority is None else PriorityBound(spec.max_priority, f"maxPriority of {owner}"),
    )
    return NO_BOUNDS if found == NO_BOUNDS else found


def tightest(bounds: Iterable[Bounds]) -> Bounds:
    found = NO_BOUNDS
    for each in bounds:
        found = found.within(each)
    return found


def _bound(text: str | None, source: str) -> Bound | None:
    return None if text is None else Bound(duration_s(text), source)


def _tighter(one: Bound | None, other: Bound | None) -> Bound | None:
    if one is None or other is None:
        return one or other
    return other if other.seconds < one.seconds else one
