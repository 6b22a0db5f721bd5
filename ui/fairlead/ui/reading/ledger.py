"""What pages read of the ledger: the controller's own database, or a copy of it. One question at a time, in a thread; answers are kept.

An answer about the last day changes little in a minute, so it is kept for a thousandth of its window and at least `FRESH_S`; what began or
ended meanwhile is seen by claims. Requests for the same at one time wait for one answer; where many questions wait, more are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.history.cost import bill as bills
from fairlead.history.cost import window
from fairlead.history.cost.bill import Asked, Bill
from fairlead.history.cost.usage import priced
from fairlead.history.cost.window import CostError, Window, known_part, parse
from fairlead.history.ledger.entries import Bucket, Decision, Span, Stretch
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.prices import PriceBook
from fairlead.kube.limits import Clock
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import DAY_US, HOUR_US, SECOND_US
from fairlead.ui.model import day as days
from fairlead.ui.model.day import Day
from fairlead.ui.model.facts import Past
from fairlead.ui.reading.cluster import NotReadError

T = TypeVar("T")
Flavors = Callable[[], Awaitable[Sequence[Raw]]]
FRESH_S = 10.0
BILL_S = 30.0  # how long a bill is kept
DAY_S = 30.0  # likewise, the last day
BILL_DAYS_MAX = 100
KEPT_MAX = 32
WAITING_MAX = 16
DECISIONS_MAX = 100  # of one gang
STRETCHES_MAX, STRETCHES_S = 5_000, 30.0  # of one gang; how long they are kept
SPANS_MAX = 400_000  # of one answer: some 150 MB
LATE_US = 300 * SECOND_US  # what is missing of a window's end is said from there on
NO_LEDGER = (
    "no ledger is named, so nothing is known of the past: start it with --ledger DIR|URL, or FAIRLEAD_LEDGER, where the controller keeps it "
    "(docs/ui.md says how, in a cluster and on a laptop)"
)


NOTHING_YET = "the ledger holds nothing yet: the controller writes it as it runs; see that it was started with one"


class Reader(window.Reader, Protocol):
    """What a page reads: as a bill, and when each claim held each device."""

    def spans(self, since_us: int, until_us: int) -> Iterable[Span]: ...

    def decisions(self, namespace: str, gang: str, most: int) -> Iterable[Decision]: ...

    def stretches(self, namespace: str, gang: str, since_us: int, until_us: int, most: int) -> Iterable[Stretch]: ...

    def close(self) -> None: ...


class Ledger:
    """`where`: as of `open_reader`; "": there is none. `flavors` reads the cluster's, for prices; None: nothing has a price."""

    def __init__(
        self,
        where: str,
        *,
        flavors: Flavors | None = None,
        open_: Callable[[str], Reader] = open_reader,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        self.where = where
        self._flavors = flavors
        self._open = open_
        self._clock, self._wall = clock, wall
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._kept: dict[
            Any, tuple[float, Any]
        ] = {}  # by question: until when of the clock, and the answer; the oldest first
        self._parts: dict[int, Mapping[Bucket, float]] = {}  # of the last day, by their beginning

    async def past(self, lasts_s: float, until: float | None = None) -> Past:
        """The window of that length until then, unix seconds; None: now. What prevents it is said in `missing`."""
        if not self.where:
            return Past(missing=NO_LEDGER)
        key, fresh_s = ("past", lasts_s, until), max(FRESH_S, lasts_s / 1000)
        try:
            return await self._answer(key, fresh_s, lambda: self._past(lasts_s, until))
        except (LedgerError, NotReadError) as error:
            return Past(missing=f"of the past nothing is known: {error}")

    async def day(self) -> Day:
        """The last day of all devices, and what idle ones cost. What prevents it is said in `missing`."""
        if not self.where:
            return Day(missing=NO_LEDGER)
        try:
            book = await self._book()
        except NotReadError:
            book = PriceBook.of(())
        try:
            return await self._answer("day", DAY_S, lambda: self._day(book))
        except NotReadError as error:
            return Day(missing=str(error))

    async def decisions(self, namespace: str, gang: str) -> tuple[Decision, ...]:
        """The decisions about a gang, the newest first; none where the ledger cannot be read, which `past` tells of."""
        if not self.where:
            return ()
        try:
            return await self._answer(("decisions", namespace, gang), FRESH_S, lambda: self._decisions(namespace, gang))
        except (LedgerError, NotReadError):
            return ()

    async def stretches(self, namespace: str, gang: str, lasts_s: float) -> tuple[Stretch, ...]:
        """How busy the gang's devices were in the window of that length until now; none where the ledger cannot be read."""
        if not self.where:
            return ()
        try:
            key = ("stretches", namespace, gang, lasts_s)
            return await self._answer(key, STRETCHES_S, lambda: self._stretches(namespace, gang, lasts_s))
        except (LedgerError, NotReadError):
            return ()

    async def bill(self, asked: Asked, window: str) -> Bill:
        """Raises CostError for the question or the ledger, NotReadError for prices, or where too many questions wait."""
        if not self.where:
            raise CostError(NO_LEDGER)
        asked_for = parse(window, self._wall())  # what is wrong with it is said without waiting
        if asked_for.until_us - asked_for.since_us > BILL_DAYS_MAX * DAY_US:
            raise CostError(
                f"--window {window}: a page shows {BILL_DAYS_MAX} days at most: ask for less, or `fairlead cost` for all of it"
            )
        key = ("bill", window, asked)
        kept = self._known(key)
        if kept is not None:
            found: Bill = kept
            return found
        book = await self._book()
        try:
            return await self._answer(key, BILL_S, lambda: self._bill(asked, window, book))
        except LedgerError as error:
            raise CostError(f"the ledger cannot be read: {error}") from error

    async def _answer(self, key: Any, fresh_s: float, read: Callable[[], T]) -> T:
        if self._known(key) is None and self._waiting >= WAITING_MAX:
            raise NotReadError(
                f"{self._waiting} questions to the ledger wait already; load this page again in a moment"
            )
        self._waiting += 1
        try:
            async with self._turn:  # requests for the same at one time are one read
                found: T | None = self._known(key)
                if found is None:
                    found = await asyncio.to_thread(read)
                    self._keep(key, found, fresh_s)
                return found
        finally:
            self._waiting -= 1

    def _known(self, key: Any) -> Any:
        until, found = self._kept.get(key, (0.0, None))
        return found if until > self._clock() else None

    def _keep(self, key: Any, found: Any, fresh_s: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (self._clock() + fresh_s, found)
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _past(self, lasts_s: float, until: float | None) -> Past:
        until_us = int((self._wall() if until is None else until) * SECOND_US)
        since_us = until_us - int(lasts_s * SECOND_US)
        with contextlib.closing(self._open(self.where)) as reader:
            known = reader.known()
            if known is None:
                return Past(missing=NOTHING_YET)
            spans = tuple(itertools.islice(reader.spans(since_us, until_us), SPANS_MAX + 1))
            if len(spans) > SPANS_MAX:
                return Past(
                    missing=f"the past is not shown: more than {SPANS_MAX:,} devices were held and given up in this time; choose a shorter one",
                    known_us=known,
                )
            missing = ""
            if known[1] < until_us - LATE_US:
                missing = f"the ledger covers {Window(*known)}: after that only what runs now is shown"
            return Past(
                spans=spans,
                waits=tuple(reader.waits(since_us, until_us)),
                gaps=tuple(reader.gaps(since_us, until_us)),
                known_us=known,
                window_us=(since_us, until_us),
                missing=missing,
            )

    def _day(self, book: PriceBook) -> Day:
        """What prevents it is an answer, too: a page that is open does not ask again each second."""
        now = self._wall()
        since, now_us = days.begins(now), int(now * SECOND_US)
        try:
            with contextlib.closing(self._open(self.where)) as reader:
                known = reader.known()
                if known is None:
                    return Day(missing=NOTHING_YET)
                parts = tuple(self._part(reader, since, place, known) for place in range(days.BINS))
                hour = Window(max(known[0], now_us - HOUR_US), min(known[1], now_us))
                costs = (
                    days.idle_costs(priced(reader, book, [hour], ("namespace",)))
                    if hour.until_us > hour.since_us
                    else {}
                )
        except LedgerError as error:
            return Day(missing=f"of the past nothing is known: {error}")
        begun = known[0] / SECOND_US
        return Day(since=since, parts=parts, known_from=begun if begun > since else None, idle_cost=costs)

    def _part(self, reader: Reader, since: float, place: int, known: tuple[int, int]) -> Mapping[Bucket, float]:
        """One that is over is read once."""
        begin, end = days.window_us(since, place)
        kept = self._parts.get(begin)
        if kept is not None:
            return kept
        first, last = max(begin, known[0]), min(end, known[1])
        if last <= first:
            return {}
        found = days.means(reader.sums(first, last, ()), last - first)
        if known[1] >= end + LATE_US:
            self._parts[begin] = found
            while len(self._parts) > days.BINS:
                del self._parts[min(self._parts)]
        return found

    def _decisions(self, namespace: str, gang: str) -> tuple[Decision, ...]:
        with contextlib.closing(self._open(self.where)) as reader:
            return tuple(reader.decisions(namespace, gang, DECISIONS_MAX))

    def _stretches(self, namespace: str, gang: str, lasts_s: float) -> tuple[Stretch, ...]:
        now_us = int(self._wall() * SECOND_US)
        with contextlib.closing(self._open(self.where)) as reader:
            since_us = now_us - int(lasts_s * SECOND_US)
            return tuple(reader.stretches(namespace, gang, since_us, now_us, STRETCHES_MAX))

    def _bill(self, asked: Asked, window: str, book: PriceBook) -> Bill:
        with contextlib.closing(self._open(self.where)) as reader:
            return bills.make(reader, book, asked, known_part(parse(window, self._wall()), reader.known()))

    async def _book(self) -> PriceBook:
        """Raises NotReadError."""
        if self._flavors is None:
            return PriceBook.of(())
        key = "flavors"
        raws = self._known(key)
        if raws is None:
            raws = await self._flavors()
            self._keep(key, raws, FRESH_S)
        try:
            return PriceBook.of([Flavor.stored(raw) for raw in raws])
        except ManifestError as error:
            raise NotReadError(f"prices cannot be read: {error}") from error
