"""Series of the cluster that the leader has, made at each scrape from what it knows then; a replica that does not lead has none.

Of queues: use, quotas and demand of the last decision, which gangs wait for what, and for how long. Sums over the series of all queues
count what is used twice, for a queue's figures contain those below it; demand and waiting gangs are each queue's own.

Of claims `fairlead_claim_info`: which gang, queue and flavor each allocated claim is of, to be joined with the driver's series. One
series per allocated claim of our devices, and none per pod or device: never more than there are devices and shares of devices. What
changed since the last scrape is looked at, and all of it after Queues or Flavors changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.controller.book.book import Wait
from fairlead.controller.gangs.membership.gangs import GangId, gang_id
from fairlead.controller.report.events import Failures
from fairlead.controller.watch.allocated_claims import AllocatedClaims, Held
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.settings import Settings
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.queues.charges import Charge, Charges, add
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.plan import FlavorUse, QueueUse, Waiting
from fairlead.engine.types.reasons import Code
from fairlead.kube import resource
from fairlead.kube.limits import Clock

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
    gangs = {
        (use.name, state): number
        for use in facts.uses
        for state, number in (("waiting", use.waiting), ("admitted", use.admitted))
    }
    yield _family("fairlead_queue_gangs", "Gangs of a queue by state.", ("queue", "state"), gangs.items())
    for name, text, value in _OF_FLAVOR:
        found: dict[tuple[str, ...], float] = {}
        for use in facts.uses:
            with failures.contained("series", f"queue {use.name}"):
                own = {(use.name, each.flavor): value(each) for each in use.flavors}
                found |= {labels: float(amount) for labels, amount in own.items() if amount is not None}
        about = f"{text}, in the flavor's measure, with the queues below."
        yield _family(f"fairlead_queue_{name}", about, ("queue", "flavor"), found.items())
    yield from _waiting(facts, failures)
    yield from _times(facts)


def _family(
    name: str, text: str, labels: Iterable[str], values: Iterable[tuple[tuple[str, ...], int | float | Fraction]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=tuple(labels))
    for of, value in values:
        family.add_metric(of, float(value))
    return family


def _waiting(facts: QueueFacts, failures: Failures) -> Iterator[Metric]:
    reasons: Counter[tuple[str, ...]] = Counter()
    longest: dict[tuple[str, str], tuple[float, str, str]] = {}  # since when, namespace and name
    demand: dict[tuple[str, ...], int | Fraction] = {}
    for each in facts.waiting:
        with failures.contained("series", f"gang {each.namespace}/{each.name}"):
            queue, code = each.queue or "", each.reason.code
            if each.place is not None:
                reasons[queue, code.value] += 1
                _, since = facts.waits.get((each.namespace, each.name), (queue, facts.wall))
                own = (since, each.namespace, each.name)
                longest[queue, code.value] = min(own, longest.get((queue, code.value), own))
            because = NEVER if each.reason.never else BECAUSE.get(code, OTHER)
            for flavor, asked in each.asks.items():
                key = (queue, flavor, because)
                demand[key] = demand.get(key, 0) + asked
    text = "Gangs that the last decision left waiting, by why."
    yield _family("fairlead_gangs_waiting", text, ("queue", "reason"), sorted(reasons.items()))
    text = "How long the gang has waited that has waited longest, of each queue and reason; no other gang has a series."
    named = (((*key, *gang), max(0.0, facts.wall - at)) for key, (at, *gang) in sorted(longest.items()))
    yield _family("fairlead_longest_waiting_gang_seconds", text, ("queue", "reason", "namespace", "gang"), named)
    text = "What waiting gangs ask for at least, in the flavor's measure, by what would let them start."
    yield _family("fairlead_queue_demand", text, ("queue", "flavor", "because"), sorted(demand.items()))


def _times(facts: QueueFacts) -> Iterator[Metric]:
    # A hold lasts as long as a user wants: no promise of a queue is broken by it.
    held = {(each.namespace, each.name) for each in facts.waiting if each.reason.code is Code.ON_HOLD}
    since = {**{use.name: facts.wall for use in facts.uses}, **_oldest(facts.waits, held)}
    waited = [((queue,), max(0.0, facts.wall - at)) for queue, at in sorted(since.items())]
    text = "How long the gang has waited that has waited longest; one on hold does not count."
    yield _family("fairlead_queue_oldest_wait_seconds", text, ("queue",), waited)
    targets = [((queue,), target_s) for queue, target_s in sorted(facts.targets_s.items())]
    text = "The wait that a queue's owner states for 95 of 100 gangs; absent where none is stated."
    yield _family("fairlead_queue_wait_target_seconds", text, ("queue",), targets)


def _oldest(waits: Mapping[GangId, Wait], held: Container[GangId]) -> dict[str, float]:
    """By queue, since when the gang waits that has waited longest; those that are held do not count."""
    found: dict[str, float] = {}
    for gang, (queue, at) in waits.items():
        if gang not in held:
            found[queue] = min(at, found.get(queue, at))
    return found


class ClaimInfo(NamedTuple):
    namespace: str
    claim: str
    gang: str
    queue: str
    flavor: str


class ClaimSeries(Collector):
    """Between `begin` and `end` it has the series of these caches, else none."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._known: KnownClaims | None = None

    def begin(self, caches: Caches, *, wall: Clock) -> None:
        self._known = KnownClaims(caches, self._failures, wall=wall)

    def end(self) -> None:
        if self._known is not None:
            self._known.close()
        self._known = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if self._known is None:
            return
        text = "1 for each allocated claim of our devices."
        yield _family("fairlead_claim_info", text, ClaimInfo._fields, ((info, 1) for info in self._known.infos()))


class KnownClaims:
    def __init__(self, caches: Caches, failures: Failures, *, wall: Clock) -> None:
        self._caches = caches
        self._failures = failures
        self._notes = AllocatedClaims(caches, self._contained, wall=wall, keeps_ended=False)
        self._flavors = HeldFlavors(caches)
        self._infos: dict[str, ClaimInfo] = {}  # by claim UID
        self._settings: Settings | None = None
        self._notes.begin()

    def close(self) -> None:
        self._notes.end()

    def infos(self) -> Iterable[ClaimInfo]:
        settings = self._caches.rules.settings()
        if settings is not self._settings:
            self._settings = settings
            self._notes.touch_all()
        changed, _ = self._notes.take()
        for held in changed:
            with self._contained(held):
                self._infos[held.uid] = self._info(held)
        for uid in [uid for uid in self._infos if not self._notes.holds(uid)]:
            del self._infos[uid]
        return self._infos.values()

    def _contained(self, held: Held) -> AbstractContextManager[None]:
        return self._failures.contained("series", f"claim {held.claim.metadata.key}")

    def _info(self, held: Held) -> ClaimInfo:
        meta, pod = held.claim.metadata, held.first_pod
        gang = None if pod is None else gang_id(pod)
        return ClaimInfo(
            meta.namespace,
            meta.name,
            "" if gang is None else gang[1],
            "" if gang is None else self._caches.rules.queue_of(gang),
            self._flavors.of([held.claim]),
        )


class HeldFlavors:
    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._settings: Settings | None = None
        self._charges = Charges((), Selectors())

    def of(self, claims: Iterable[resource.ResourceClaim]) -> str:
        """The flavor of all of these together; "" where no flavor takes their devices."""
        settings = self._caches.rules.settings()
        if settings is not self._settings:
            self._settings, self._charges = settings, Charges(settings.flavors, Selectors())
        total: Charge = {}
        for claim in claims:
            allocated = AllocatedClaim.of(claim)
            if allocated is not None:
                add(total, self._charges.of_allocated(allocated, self._caches.tables.inventory))
        return min(total, key=lambda flavor: (-total[flavor], flavor), default="")
