"""Bills for tests: prices, a day that is read at a glance, and lives of devices that hypothesis draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from fairlead.api.flavor import Flavor
from fairlead.history.cost.bill import Asked, Bill, Line, make
from fairlead.history.cost.usage import add_money
from fairlead.history.cost.window import Known, Window
from fairlead.history.ledger.entries import BUCKETS, HELD, Allocation, Bucket, Interval
from fairlead.history.ledger.pod_entries import Holder, PodAmount, PodInterval
from fairlead.history.prices import PriceBook
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.ledger_in_memory import Ledger, allocation, day, interval

D1 = day("2026-11-01")


def flavor(name: str, *prices: dict[str, Any]) -> Flavor:
    raw = {"kind": "Flavor", "metadata": {"name": name}, "spec": {"deviceSelector": "true", "price": list(prices)}}
    return Flavor.stored(raw)


def price(per_hour: str, currency: str = "EUR", since: str | None = None) -> dict[str, Any]:
    return {"perHour": per_hour, "currency": currency, "from": since}


BOOK = PriceBook.of([
    flavor("h100", price("3.00"), price("4.00", since="2026-11-01T12:00:00Z")),
    flavor("a100", price("1.70", "USD")),
    flavor("l40s"),
    flavor("cpu", price("0.10")),
    flavor("memory", price("0.01"), price("0.02", since="2026-11-01T12:00:00Z")),
])  # fmt: skip


def at(hour: float) -> int:
    return D1 + round(hour * HOUR_US)


def bill(
    intervals: Iterable[Interval],
    asked: Asked,
    since: int = D1,
    until: int = D1 + DAY_US,
    pods: Sequence[PodInterval] = (),
) -> Bill:
    return make(Ledger(list(intervals), pods=pods), BOOK, asked, Known(Window(since, until)))


def pod(
    flavor: str, amount: Fraction | int, since: int, until: int | None, *, of: Allocation, uid: str = "p"
) -> PodInterval:
    """Of the gang of this claim; the flavor is named as the resource."""
    holder = Holder(of.namespace, of.gang, of.queue, of.user, of.labels)
    return PodInterval(
        pod_uid=uid,
        holder=holder,
        amount=PodAmount(flavor, flavor, Fraction(amount)),
        start_us=since,
        end_us=until,
    )


def accounted(line: Line) -> dict[str, Fraction]:
    """What a line costs: charged, or nobody is charged for it."""
    assert not (line.charged and line.uncharged), line
    return {**line.charged, **line.uncharged}


def price_of(found: Bill) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for line in found.lines:
        add_money(total, accounted(line))
    return total


TRAIN, SERVE = allocation("a", queue="ml", gang="train"), allocation("b", queue="web", gang="serve", namespace="shop")
DAY = [
    # Six hours at 3, six at 4 of which two idle; then free.
    interval(0, "used", at(6), at(14), claim=TRAIN, busy=0.5),
    interval(0, "idle", at(14), at(16), claim=TRAIN, busy=0.0),
    interval(0, "free", at(0), at(6)),
    interval(0, "free", at(16), at(24)),
    interval(1, "starting", at(0), at(1), claim=SERVE),
    interval(1, "used", at(1), at(24), claim=SERVE),
]

FLAVORS = st.sampled_from(["h100", "a100", "l40s"])
CLAIMS = st.builds(
    allocation,
    st.sampled_from("abc"),
    gang=st.sampled_from(["train", "serve", ""]),
    queue=st.sampled_from(["ml", "web", ""]),
    namespace=st.sampled_from(["vision", "shop"]),
    user=st.sampled_from(["ada", ""]),
    team=st.sampled_from(["x", "y"]),
)


@st.composite
def lives(draw: st.DrawFn) -> list[Interval]:
    """Up to four GPUs, each with a life of intervals without holes over three days; some are cut into two shares."""
    found: list[Interval] = []
    for gpu in range(draw(st.integers(1, 4))):
        shares = draw(st.sampled_from([(1_000_000,), (428_571, 571_429)]))
        name = draw(FLAVORS)
        edges = sorted(draw(st.sets(st.integers(0, 3 * DAY_US), min_size=2, max_size=6)))
        for ppm in shares:
            for start, end in itertools.pairwise(edges):
                bucket: Bucket = draw(st.sampled_from(BUCKETS))
                claim = draw(CLAIMS) if bucket in HELD else None
                busy = draw(st.sampled_from([None, 0.0, 0.3, 1.0])) if claim else None
                lost = bucket == "used" and draw(st.booleans())
                found.append(
                    interval(gpu, bucket, D1 + start, D1 + end, claim=claim, ppm=ppm, flavor=name, busy=busy, lost=lost)
                )
    return found


@st.composite
def pod_lives(draw: st.DrawFn) -> list[PodInterval]:
    """Up to four pods over three days, of flavors with a price, with two and without."""
    found: list[PodInterval] = []
    for number in range(draw(st.integers(0, 4))):
        since, until = sorted(draw(st.lists(st.integers(0, 3 * DAY_US), min_size=2, max_size=2)))
        name, of = draw(st.sampled_from(["cpu", "memory", "pods"])), draw(CLAIMS)
        amount = draw(st.sampled_from([Fraction(7, 2), Fraction(1, 3), Fraction(64)]))
        found.append(pod(name, amount, D1 + since, D1 + until, of=of, uid=str(number)))
    return found


WHOLE = Window(D1, D1 + 3 * DAY_US)
