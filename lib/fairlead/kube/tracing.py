"""Spans, and the thread that exports them: `add` never waits, and what cannot be exported is dropped and counted.

A span is made when it is over, by the code that knows when it began and ended; there is no current span. Between `add` and the exporter is a
bounded queue, so an endpoint that is slow or down costs memory for `QUEUE_MAX` spans and one line in the log for each time that it
fails, nothing else. The thread is our own and not that of OpenTelemetry's SDK: that one starts again in every forked process, and the
controller forks for its forecasts; nor does it count what it drops. `otlp` has the exporter; nothing here imports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily

from fairlead.api.trace_context import TraceContext

log = logging.getLogger(__name__)

Value = str | int | float | bool

QUEUE_MAX: Final = 8192
"""Spans that wait for the exporter; each takes about 1 kB."""
BATCH_MAX: Final = 512
INTERVAL_S: Final = 2.0
CLOSE_S: Final = 3.0
"""How long the end of a program waits for its last spans."""
OUTCOMES: Final = ("exported", "failed", "dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One that is over. `at` is itself; `parent` is the id of a span in the same trace. Times are unix seconds."""

    name: str
    at: TraceContext
    parent: int | None
    began_s: float
    ended_s: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""  # why what it stands for failed
    links: tuple[TraceContext, ...] = ()


class Tracing(Protocol):
    """Where a program's spans go."""

    def add(self, span: Span) -> None:
        """Never waits, never fails. A span that is not sampled goes nowhere."""


class Exporter(Protocol):
    """Used by one thread, but for `stop`."""

    def export(self, spans: Sequence[Span]) -> str:
        """Returns why these spans did not arrive, "" where they did."""

    def stop(self) -> None:
        """Ends an export that is under way, as soon as may be."""


class Tracer:
    """Between `start` and `close` a thread of its own exports what was added. A Prometheus collector, too."""

    def __init__(
        self,
        exporter: Exporter,
        *,
        where: str,
        queue_max: int = QUEUE_MAX,
        batch_max: int = BATCH_MAX,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`where`: the endpoint, for the log."""
        self._exporter = exporter
        self._where = where
        self._queue: deque[Span] = deque()
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._interval_s = interval_s
        self._wake = threading.Event()
        self._closing = False
        self._counts = Counter[str]()  # by outcome; `dropped` is counted by the callers' thread, the others by ours
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, span: Span) -> None:
        if not span.at.sampled:
            return
        if len(self._queue) >= self._queue_max or self._closing:
            self._counts["dropped"] += 1
            return
        self._queue.append(span)
        if len(self._queue) >= self._batch_max:
            self._wake.set()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Exports what is left, for as long as `timeout_s`; blocks so long."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._exporter.stop()
            left = len(self._queue)
            log.warning("traces: %s has not answered for %.0f s; %d spans are lost", self._where, timeout_s, left)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "fairlead_trace_spans", "Spans of traces, by what became of them.", labels=["outcome"]
        )
        for outcome in OUTCOMES:
            family.add_metric([outcome], self._counts[outcome])
        yield family

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(self._batch_max, len(self._queue)))]
                self._export(batch)
            if self._closing:
                return

    def _export(self, batch: list[Span]) -> None:
        try:
            problem = self._exporter.export(batch)
        except Exception as error:  # the next batch may do better
            problem = f"{type(error).__name__}: {error}"
        self._counts["failed" if problem else "exported"] += len(batch)
        if problem and not self._failing:
            log.warning(
                "traces: %s takes no spans: %s; they are dropped until it does, and counted as fairlead_trace_spans_total",
                self._where, problem,
            )  # fmt: skip
        elif self._failing and not problem:
            log.info("traces: %s takes spans again", self._where)
        self._failing = bool(problem)


class NoTracing:
    """What stands for a tracer where there are no traces."""

    def add(self, span: Span) -> None:
        pass


OFF: Final[Tracing] = NoTracing()


@contextlib.asynccontextmanager
async def exporting(tracer: Tracer | None) -> AsyncIterator[Tracer | None]:
    """Exports while the context lasts; at its end, for `CLOSE_S` at most."""
    if tracer is None:
        yield None
        return
    tracer.start()
    try:
        yield tracer
    finally:
        await asyncio.to_thread(tracer.close)
