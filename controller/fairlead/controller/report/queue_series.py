"""What metrics say of queues: use, quotas and demand of the last decision, which gangs wait for what, and for how long.

Made at each scrape from what the leader knows then; a replica that does not lead has none of these series. Sums over the series of
all queues count what is used twice, for a queue's figures contain those below it; demand and waiting gangs are each queue's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.controller.book.book import Wait
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.report.failures import Failures
from fairlead.engine.types.plan import FlavorUse, QueueUse, Waiting
from fairlead.engine.types.reasons import Code

# What would let a gang start that could, by why it waits: a closed list, for autoscalers. All other codes are "other".
BECAUSE: Final[Mapping[Code, str]] = {
    Code.NO_DEVICES: "devices",
    Code.AWAITING_NODES: "devices",
    Code.COMING_FREE: "devices",
    Code.HELD: "devices",
    Code.MAKING_ROOM: "devices",
    Code.BEHIND_HEAD: "devices",
    Code.OVER_SHARE: "share",
    Code.PROTECTED: "share",
    Code.NO_NODE: "nodes",
    Code.NODES_FULL: "nodes",
    Code.NODES_AWAY: "nodes",
    Code.NEVER_FITS: "nodes",  # with those that are away now it could
    Code.OVER_LIMIT: "quota",
    Code.OVER_QUOTA: "quota",
    Code.BUDGET_EXHAUSTED: "quota",
}
NEVER: Final = "never"  # whatever the code: by `Reason.never`, as forecasts have it
OTHER: Final = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """`targets_s`: wait targets in seconds, of queues that have one. `wall`: unix seconds."""

    uses: tuple[QueueUse, ...]
    waiting: Collection[Waiting]
    waits: Mapping[GangId, Wait]
    targets_s: Mapping[str, float]
    wall: float


class QueueSeries(Collector):
    """`facts` gives what is known at a scrape; None, or nothing set: there are no series."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self.facts: Callable[[], QueueFacts] | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if self.facts is not None:
            yield from series(self.facts(), self._failures)


_OF_FLAVOR: Final[tuple[tuple[str, str, Callable[[FlavorUse], int | Fraction | None]], ...]] = (
    ("used", "What admitted gangs hold", lambda use: use.used),
    ("fair_share", "What a queue may hold when all ask for theirs", lambda use: use.fair_share),
    ("deserved", "What a queue deserves by its quota of now", lambda use: use.deserved),
    ("limit", "The most that a queue may hold; absent where there is no limit", lambda use: use.limit),
)


def series(facts: QueueFacts, failures: Failures) -> Iterator[Metric]:
    gangs = GaugeMetricFamily("fairlead_queue_gangs", "Gangs of a queue by state.", labels=("queue", "state"))
    for use in facts.uses:
        gangs.add_metric((use.name, "waiting"), use.waiting)
        gangs.add_metric((use.name, "admitted"), use.admitted)
    yield gangs
    for name, text, value in _OF_FLAVOR:
        family = GaugeMetricFamily(
            f"fairlead_queue_{name}",
            f"{text}, in the flavor's measure, with the queues below.",
            labels=("queue", "flavor"),
        )
        for use in facts.uses:
            with failures.contained("series", f"queue {use.name}"):
                for flavor in use.flavors:
                    if (found := value(flavor)) is not None:
                        family.add_metric((use.name, flavor.flavor), float(found))
        yield family
    yield from _waiting(facts, failures)
    yield from _times(facts)


def _waiting(facts: QueueFacts, failures: Failures) -> Iterator[Metric]:
    reasons: Counter[tuple[str, str]] = Counter()
    demand: dict[tuple[str, str, str], int | Fraction] = {}
    for each in facts.waiting:
        with failures.contained("series", f"gang {each.namespace}/{each.name}"):
            queue, code = each.queue or "", each.reason.code
            if each.place is not None:
                reasons[queue, code.value] += 1
            because = NEVER if each.reason.never else BECAUSE.get(code, OTHER)
            for flavor, asked in each.asks.items():
                key = (queue, flavor, because)
                demand[key] = demand.get(key, 0) + asked
    gangs = GaugeMetricFamily(
        "fairlead_gangs_waiting", "Gangs that the last decision left waiting, by why.", labels=("queue", "reason")
    )
    for of_reason, number in sorted(reasons.items()):
        gangs.add_metric(of_reason, number)
    yield gangs
    family = GaugeMetricFamily(
        "fairlead_queue_demand",
        "What waiting gangs ask for at least, in the flavor's measure, by what would let them start.",
        labels=("queue", "flavor", "because"),
    )
    for labels, asked in sorted(demand.items()):
        family.add_metric(labels, float(asked))
    yield family


def _times(facts: QueueFacts) -> Iterator[Metric]:
    oldest = GaugeMetricFamily(
        "fairlead_queue_oldest_wait_seconds",
        "How long the gang has waited that has waited longest; one on hold does not count.",
        labels=("queue",),
    )
    # A hold lasts as long as a user wants: no promise of a queue is broken by it.
    held = {(each.namespace, each.name) for each in facts.waiting if each.reason.code is Code.ON_HOLD}
    since = {**{use.name: facts.wall for use in facts.uses}, **_oldest(facts.waits, held)}
    for queue, at in sorted(since.items()):
        oldest.add_metric((queue,), max(0.0, facts.wall - at))
    yield oldest
    target = GaugeMetricFamily(
        "fairlead_queue_wait_target_seconds",
        "The wait that a queue's owner states for 95 of 100 gangs; absent where none is stated.",
        labels=("queue",),
    )
    for queue, target_s in sorted(facts.targets_s.items()):
        target.add_metric((queue,), target_s)
    yield target


def _oldest(waits: Mapping[GangId, Wait], held: Container[GangId]) -> dict[str, float]:
    """By queue, since when the gang waits that has waited longest; those that are held do not count."""
    found: dict[str, float] = {}
    for gang, (queue, at) in waits.items():
        if gang not in held:
            found[queue] = min(at, found.get(queue, at))
    return found
