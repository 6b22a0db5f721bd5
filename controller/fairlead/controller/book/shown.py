"""What is shown of a gang beyond its pods and claims: the one list of it, and when a change of each field is written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fairlead.api.texts import counted
from fairlead.controller.gangs.evictions.eviction_marks import EvictionProgress
from fairlead.controller.gangs.held.idleness import IdleNotice
from fairlead.controller.gangs.held.leaving import LostNode
from fairlead.controller.gangs.held.placement import HeldModels, LevelPlacement
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.engine.forecast.forecast import GangForecast
from fairlead.engine.types.plan import NodeDemand, Reservation, Waiting
from fairlead.kube import timestamps

BECAUSE_MAX = 1024
NODES_CONDITION = "AwaitingNodes"


@dataclass(frozen=True, slots=True)
class ShownForecast:
    """`as_of`: unix seconds. `first_as_of` and `first`: the gang's first forecast, by which forecasts are judged.

    `stale`: why there has been no newer one for a while, "" where there has.
    """

    forecast: GangForecast
    as_of: float
    first: GangForecast
    first_as_of: float
    stale: str = ""

    def status(self, waiting: Waiting) -> dict[str, Any]:
        """As Gang status has it, with why the gang waits: that is newer, and may rule its times out."""
        said = self.forecast.within(waiting)
        because = f"no newer forecast: {self.stale}; {said.because}" if self.stale else said.because
        found: dict[str, Any] = {"asOf": timestamps.seconds(self.as_of), "because": because[:BECAUSE_MAX]}
        if said.never:
            found["never"] = True
        if said.p50 is not None:
            found["p50"] = timestamps.seconds(said.p50)
        if said.p90 is not None:
            found["p90"] = timestamps.seconds(said.p90)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAwaited:
    """What the gang's status says of its demand. Unix seconds."""

    demand: NodeDemand
    expected: float | None = None
    samples: int = 0  # earlier scale-ups of the flavor
    median_s: float = 0.0
    note: str = ""  # what the cluster answered

    @property
    def text(self) -> str:
        demand = self.demand
        if demand.state != "Asked":
            return demand.message
        if self.expected is not None:
            when = f"nodes are expected by {timestamps.seconds(self.expected)}: the median of {self._scale_ups} is {self.median_s:.0f} s"
        elif self.samples:
            when = f"nodes take longer than usual: the median of {self._scale_ups} is {self.median_s:.0f} s"
        else:
            when = f"no scale-up of flavor {demand.flavor} is known yet, so it is not known when nodes come"
        return f"{when}; {self.note}" if self.note else when

    @property
    def _scale_ups(self) -> str:
        return f"{counted(self.samples, 'scale-up')} of flavor {self.demand.flavor}"

    def status(self) -> dict[str, Any]:
        """`status.nodesAwaited` of the Gang."""
        demand = self.demand
        found = {
            "state": demand.state,
            "mode": demand.mode,
            "flavor": demand.flavor,
            "since": None if demand.since is None else timestamps.seconds(demand.since),
            "expected": None if self.expected is None else timestamps.seconds(self.expected),
            "evictsFrom": None if demand.evicts_from is None else timestamps.seconds(demand.evicts_from),
            "message": self.text[:1024],
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """What the controller has of a gang beyond its pods: the engine's answer, and what is under way for it."""

    waiting: Waiting | None = None
    admitting: bool = False
    queue: str = ""  # that it names, or else the one that takes its namespace; "" where there is none
    last_failure: str = ""  # why its last admission was undone
    eviction: EvictionProgress | None = None
    victims: tuple[str, ...] = ()  # gangs that are being evicted for it
    reservation: Reservation | None = None
    leaving: str = ""  # which of its pods are leaving since when, and until when others wait for them
    forecast: ShownForecast | None = None  # of its start
    idle: IdleNotice | None = None  # its devices are idle
    placement: tuple[LevelPlacement, ...] = ()  # level by level
    models: HeldModels | None = None  # of its devices
    hold: str = ""  # which hold keeps it, or more of it, from being admitted
    nodes: NodesAwaited | None = None  # nodes are asked for, for it, or would be
    untried: int = 0  # released members that kube-scheduler should have tried by now
    lost: tuple[LostNode, ...] = ()  # nodes of its members that do not answer
    refused: tuple[str, str] | None = None  # a pod's UID, and why it does not start, as Events say it


SHOWN_SOON: Final = ("queue", "last_failure", "eviction", "victims", "hold", "untried", "lost", "refused")
"""Fields whose change is written at once, as that of the phase: what operators did, or what others do for or to the gang."""
APPEARS_SOON: Final = ("reservation", "idle")
"""Fields whose coming and going is: what they say in between changes with each decision or sample."""
SHOWN_LATER: Final = ("waiting", "admitting", "leaving", "forecast", "placement", "models", "nodes")
"""Fields that change while nothing happens to the gang itself: written with the next reason, or after a while."""


def shown_soon(gang: Gang, state: SchedulingState) -> tuple[object, ...]:
    """What is compared to know whether the status is to be written at once, beside the phase."""
    said = (getattr(state, name) for name in SHOWN_SOON)
    there = (getattr(state, name) is not None for name in APPEARS_SOON)
    return (gang.size, gang.queue, gang.priority, *said, *there)
