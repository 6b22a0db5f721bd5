"""Keeps the ledger of one term: observations are taken in the loop, accounted and stored in a thread of its own.

It never stops a decision. While the store refuses (locked, full, not reached), what is to be written waits in memory, bounded; beyond
the bound the account is begun anew from what the store has, and the time between is a gap that the ledger tells of.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fairlead.history.ledger.account import Account
from fairlead.history.ledger.entries import Batch, Bucket, Kept, Observation

log = logging.getLogger(__name__)

COMMIT_S = 5.0
RETRY_S = 10.0
PRUNE_S = 600.0
QUEUE_MAX = 64  # observations that wait for the thread
PENDING_MAX = 200_000  # intervals that wait for the store, some 500 bytes each
CLOSE_S = 5.0


class Store(Protocol):
    """What the keeper needs of `store.Writer`."""

    def kept(self) -> Kept: ...
    def commit(self, batch: Batch) -> None: ...
    def prune(self, before_us: int) -> int:
        """How many rows it removed; to be called until it is 0."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Counts:
    """For metrics; the first three only grow."""

    intervals: int = 0
    failures: int = 0
    gaps: int = 0
    pending: int = 0  # intervals that wait for the store
    as_of_us: int = 0  # until when the store knows
    devices: Mapping[tuple[Bucket, str], int] = field(default_factory=dict)  # see `Account.devices`


def _rows(batch: Batch) -> int:
    return len(batch.intervals) + len(batch.pods)


@dataclass(slots=True)
class _Job:
    seen: Observation
    whole: bool
    sole: bool
    reason: str


@dataclass(slots=True)
class _Shared:
    counts: Counts = field(default_factory=Counts)
    whole: threading.Event = field(default_factory=threading.Event)
    problems: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)


class Keeper:
    """`open_store` raises what `errors` names, as the store's methods do; `taken` is raised where another writer took the ledger over.

    `lease_transitions`: how often the lease had changed hands when this term began. `keep_us`: intervals that ended earlier than so long ago are
    removed; None: none. `observe` from one thread; the first observation, and each after `wants_whole`, has everything that is there.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        errors: tuple[type[Exception], ...],
        taken: type[Exception],
        clock: Callable[[], float],
        lease_transitions: int | None = None,
        keep_us: int | None = None,
        ends: Callable[[int, frozenset[str]], Mapping[str, int]] | None = None,
    ) -> None:
        """`ends`: when claims ended since a time, as far as that is known otherwise; called in the thread."""
        self._open_store = open_store
        self._errors = errors
        self._taken = taken
        self._clock = clock
        self._lease_transitions = lease_transitions
        self._keep_us = keep_us
        self._ends = ends
        self._shared = _Shared()
        self._shared.whole.set()
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUE_MAX)
        self._begun = False
        self._reason = ""
        # The thread's own.
        self._store: Store | None = None
        self._account: Account | None = None
        self._pending: deque[Batch] = deque()
        self._try_at = float("-inf")
        self._commit_at = float("-inf")
        self._prune_at = float("-inf")
        self._told = ""
        self._over = False
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    # -- in the loop -----------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        return self._shared.counts

    @property
    def wants_whole(self) -> bool:
        return self._shared.whole.is_set()

    def observe(self, seen: Observation, *, whole: bool) -> None:
        """`whole`: it has everything that is there. One that cannot be taken is lost, and a whole one is wanted."""
        if self.wants_whole and not whole:
            return
        job = _Job(seen, whole, sole=not self._begun, reason=self._reason)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._shared.whole.set()
            self._reason = "the ledger was behind: more happened than could be accounted"
            return
        if whole:
            self._begun, self._reason = True, ""
            self._shared.whole.clear()

    def problem(self) -> str | None:
        """One thing that went wrong since, told once."""
        with contextlib.suppress(queue.Empty):
            return self._shared.problems.get_nowait()
        return None

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Writes what waits; what is not written in time is found by the next leader, or is a gap."""
        with contextlib.suppress(queue.Full):
            self._jobs.put_nowait(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("ledger: not closed within %g s; the next leader goes on from what is written", timeout_s)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        more = True
        while more:
            try:
                more = self._work(COMMIT_S)
            except Exception as error:  # a defect here must not end the ledger: it goes on from what is stored
                log.exception("ledger: accounting failed")
                self._account = None
                self._pending.clear()
                self._reason = f"accounting failed: {error!r}"
                self._fail(error)
                self._shared.whole.set()

    def _work(self, wait_s: float) -> bool:
        """Takes one observation, or none where none comes for so long. False: closed."""
        job: _Job | None
        try:
            job = self._jobs.get(timeout=wait_s)
        except queue.Empty:
            pass
        else:
            if job is None:
                self._try_at = float("-inf")
                self._write()
                self._drop_store()
                return False
            self._take(job)
        if self._clock() >= self._commit_at:
            self._write()
        return True

    def _take(self, job: _Job) -> None:
        if self._over:
            return
        if job.whole:
            self._begin(job)
        elif self._account is not None:
            self._account.observe(job.seen)

    def _begin(self, job: _Job) -> None:
        """The account goes on from what the store has."""
        self._pending.clear()
        self._account = None
        kept = self._kept()
        if kept is None:
            self._shared.whole.set()  # told again, until the store can be read
            return
        sole = job.sole and self._follows(kept)
        account = Account(kept)
        ends, since_us = self._ends, kept.as_of_us
        more = {} if ends is None or since_us is None else {"ends": partial(ends, since_us)}
        account.resume(job.seen, sole=sole, reason=job.reason or "no leader wrote the ledger", **more)
        self._account = account

    def _follows(self, kept: Kept) -> bool:
        """Whether no replica led between the one that wrote last and this one."""
        now, before = self._lease_transitions, kept.lease_transitions
        return now is not None and before is not None and 0 <= now - before <= 1

    def _kept(self) -> Kept | None:
        try:
            return self._opened().kept() if self._clock() >= self._try_at else None
        except self._errors as error:
            self._fail(error)
            return None

    def _write(self) -> None:
        """All that waits, in order."""
        now = self._clock()
        self._commit_at = now + COMMIT_S
        if self._account is not None:
            batch = self._account.take()
            self._pending.append(batch)
            self._shared.counts.devices = self._account.devices()
        counts = self._shared.counts
        counts.pending = sum(map(_rows, self._pending))
        if not self._pending or now < self._try_at or self._over:
            self._bound()
            return
        try:
            while self._pending:
                batch = self._pending[0]
                store = self._opened()
                store.commit(batch if self._lease_transitions is None else batch.of_lease(self._lease_transitions))
                self._pending.popleft()
                counts.intervals += _rows(batch)
                counts.gaps += len(batch.gaps)
                counts.pending -= _rows(batch)
                counts.as_of_us, self._told = batch.as_of_us, ""
            self._prune(now)
        except self._errors as error:
            self._fail(error)
            self._bound()

    def _prune(self, now: float) -> None:
        if self._keep_us is not None and self._store is not None and now >= self._prune_at:
            more = self._store.prune(self._shared.counts.as_of_us - self._keep_us)
            self._prune_at = now + (COMMIT_S if more else PRUNE_S)

    def _bound(self) -> None:
        """More waits than is kept: from the store's last moment on it is a gap."""
        if self._shared.counts.pending > PENDING_MAX or len(self._pending) > PENDING_MAX // 10:
            self._pending.clear()
            self._shared.counts.pending = 0
            self._account = None
            self._shared.counts.devices = {}
            self._reason = f"the ledger could not be written: {self._told}"
            self._shared.whole.set()

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _drop_store(self) -> None:
        if self._store is not None:
            with contextlib.suppress(*self._errors):
                self._store.close()
        self._store = None

    def _fail(self, error: Exception) -> None:
        self._try_at = self._clock() + RETRY_S
        self._drop_store()
        if isinstance(error, self._taken):
            self._over = True
            self._pending.clear()
            self._account = None
        what = str(error)
        if what != self._told:
            log.error("ledger: %s", what)
            self._shared.problems.put(what)
        self._told = what
        self._shared.counts.failures += 1  # last: who sees it finds the problem told and the next try set
