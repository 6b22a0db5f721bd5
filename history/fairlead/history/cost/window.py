"""What is asked of a ledger: the span of time, the groups of a bill, and which part of it is shown. Pure.

`30d`, `12h`: that long until now. `2026-11-01..2026-12-01`: from the first day's beginning to the last one's, which is excluded;
RFC 3339 times will do as well as dates. `month`: this one until now. `last-month`: the one before. All in UTC, and in whole seconds.
Gangs and claims are named within a namespace, so grouping by one of them groups by its namespace, too: two teams' `train` are two lines.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from fairlead.api.durations import duration_s
from fairlead.api.object_names import is_label_key
from fairlead.history.ledger.entries import Gap, Held, Sum, UnitDay, Wait
from fairlead.history.ledger.pod_entries import PodSum
from fairlead.kube import timestamps
from fairlead.kube.timestamps import DAY_US, SECOND_US

FORMS = "30d, 2026-11-01..2026-12-01, month or last-month"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Window(NamedTuple):
    """Unix microseconds, the end excluded."""

    since_us: int
    until_us: int

    def __str__(self) -> str:
        return f"{shown(self.since_us)} to {shown(self.until_us)}"


class Known(NamedTuple):
    """The part of a window that the ledger knows. `missing` says what it does not know of it, "" where it knows all."""

    window: Window
    missing: str = ""


def shown(time_us: int) -> str:
    """`2026-11-01T00:00:00Z`; a fraction of a second is left out."""
    return timestamps.seconds(time_us // SECOND_US)


def parse(text: str, now_s: float) -> Window:
    """`now_s`: unix seconds. Raises CostError where it is no window, empty, reversed, or begins in the future."""
    now_us = int(now_s) * SECOND_US
    window = _named(text, now_us) or _range(text) or _until_now(text, now_us)
    if window.until_us < window.since_us:
        raise CostError(f"--window {text}: it ends before it begins: write the earlier time first, as in {FORMS}")
    if window.until_us == window.since_us:
        raise CostError(f"--window {text}: it is empty, since its end is excluded: write an end after its beginning")
    if window.since_us >= now_us:
        raise CostError(f"--window {text}: it begins in the future (now is {shown(now_us)}): nothing is known of it")
    return window


def known_part(window: Window, known: tuple[int, int] | None) -> Known:
    """Raises CostError where the ledger has nothing of the window."""
    if known is None:
        raise CostError(
            "the ledger holds nothing yet: the controller writes it as it runs (docs/cost.md); see that it was started with one"
        )
    whole = Window(-(-known[0] // SECOND_US) * SECOND_US, known[1] // SECOND_US * SECOND_US)
    if whole.until_us <= whole.since_us:
        raise CostError(f"the ledger began at {shown(known[0])} and holds no whole second yet: ask again in a minute")
    part = Window(max(window.since_us, whole.since_us), min(window.until_us, whole.until_us))
    if part.until_us <= part.since_us:
        raise CostError(
            f"the ledger has nothing of {window}: it covers {whole}; ask for a window within that, or name another ledger with --ledger"
        )
    if part == window:
        return Known(part)
    return Known(part, f"of {window} the ledger covers {part}; the figures are of that part alone")


def days(window: Window) -> list[Window]:
    """The window, cut where days (UTC) begin."""
    cuts = range((window.since_us // DAY_US + 1) * DAY_US, window.until_us, DAY_US)
    return cut(window, list(cuts))


def cut(window: Window, moments: list[int]) -> list[Window]:
    """At moments within the window, which are in order."""
    edges = [window.since_us, *moments, window.until_us]
    return [Window(begin, end) for begin, end in itertools.pairwise(edges)]


def month_of(time_us: int) -> Window:
    """The calendar month (UTC) that has the moment."""
    first = (_EPOCH + timedelta(microseconds=time_us)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (first + timedelta(days=32)).replace(day=1)
    return Window(_us(first), _us(following))


def _named(text: str, now_us: int) -> Window | None:
    this = month_of(now_us)
    if text == "month":
        return Window(this.since_us, now_us)
    return month_of(this.since_us - 1) if text == "last-month" else None


def _range(text: str) -> Window | None:
    first, dots, last = text.partition("..")
    return Window(_moment(text, first), _moment(text, last)) if dots else None


def _until_now(text: str, now_us: int) -> Window:
    try:
        lasts_us = int(duration_s(text)) * SECOND_US
    except ValueError:
        raise CostError(f"--window {text[:80]}: it is no window: write {FORMS}") from None
    return Window(now_us - lasts_us, now_us)


def _moment(text: str, part: str) -> int:
    try:
        if _DATE.fullmatch(part):
            return _us(datetime.fromisoformat(part).replace(tzinfo=UTC))
        found = datetime.fromisoformat(part.upper())
        if found.tzinfo is None:
            raise ValueError("it has no zone: end it with Z")
        return _us(found) // SECOND_US * SECOND_US
    except (ValueError, OverflowError) as error:
        raise CostError(
            f"--window {text[:80]}: {part[:40]!r} is no date or time ({error}): write 2026-11-01 or 2026-11-01T08:00:00Z"
        ) from None


def _us(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


class CostError(Exception):
    """The message names what was asked for, why it cannot be answered, and the next step."""


class ConservationError(CostError):
    """The ledger's sums are not the time that its devices were there: a defect of the ledger, never a user's mistake."""


LABEL: Final = "label="
BY: Final = ("queue", "namespace", "user", "flavor", "gang", "claim", "node", "device", "unit", "day")
WITHIN_NAMESPACE: Final = frozenset({"gang", "claim"})
# What time has that no claim holds; all other groups are of a claim.
OF_DEVICES: Final = frozenset({"flavor", "node", "unit", "day"})


def parse_by(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text is a group or several, after commas. In the order given, each once. Raises CostError."""
    found = dict[str, None]()
    for name in (part.strip() for text in texts for part in text.split(",")):
        group = _group(name, f"--by {name[:80]}")
        if group in WITHIN_NAMESPACE:
            found["namespace"] = None
        found[group] = None
    return tuple(found)


def parse_where(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`queue=ml`, `label=team=vision`. Raises CostError."""
    found: list[tuple[str, str]] = []
    for text in texts:
        if text.startswith(LABEL):
            name, equals, value = text.removeprefix(LABEL).partition("=")
            name = LABEL + name
        else:
            name, equals, value = text.partition("=")
        if not equals:
            raise CostError(f"--where {text[:80]}: write KEY=VALUE, such as queue=ml, gang=train or label=team=vision")
        found.append((_group(name, f"--where {text[:80]}"), value))
    return tuple(found)


def _group(name: str, where: str) -> str:
    if name.startswith(LABEL):
        if not is_label_key(name.removeprefix(LABEL)):
            raise CostError(f"{where}: {name.removeprefix(LABEL)[:80]!r} is no label's name: write label=[prefix/]name")
        return name
    if name in BY:
        return name
    near = difflib.get_close_matches(name, BY, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise CostError(f"{where}: no such group; {hint}there are {', '.join(BY)} and label=NAME")


class Reader(Protocol):
    """Windows are unix microseconds, the end excluded; intervals are cut to them, open ones to where the ledger is known."""

    def sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> Sequence[Sum]:
        """Time by the groups of `entries.GROUPS` and by "label=<name>"; keys are in the order of `by`."""
        ...

    def pod_sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> Sequence[PodSum]:
        """What pods requested. `by`: as of `sums`; of groups that pods do not have the key is ""."""
        ...

    def held(self, since_us: int, until_us: int) -> Iterator[Held]: ...

    def waits(self, since_us: int, until_us: int) -> Iterable[Wait]:
        """Those that ended, by an admission, in the window."""
        ...

    def gaps(self, since_us: int, until_us: int) -> Iterable[Gap]: ...

    def unit_days(self, since_us: int, until_us: int) -> Iterator[UnitDay]: ...

    def overlapping(self, since_us: int, until_us: int, most: int) -> int:
        """How many overlap the window, counted up to one more than `most`."""
        ...

    def known(self) -> tuple[int, int] | None:
        """From when until when the ledger is known; None: it holds nothing yet."""
        ...
