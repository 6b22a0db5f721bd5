"""One cluster at one moment, and what every view says of it.

The controller's own term looks at the objects once, decides, and writes the statuses and Events that it has; nothing else changes.
Then the command line, the pages and what is computed from a snapshot are asked about the same objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from fairlead.api import names
from fairlead.cli.views import explain, gangs
from fairlead.controller import term as terms
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.options import ControllerOptions
from fairlead.controller.rehearsal import observe
from fairlead.controller.report import queue_series, reporter
from fairlead.controller.report.events import Failures
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.standby import background
from fairlead.controller.watch.caches import Caches
from fairlead.engine.forecast.forecast import Forecast, GangForecast, forecast
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, Comparison, compare
from fairlead.engine.types.plan import Waiting
from fairlead.history.facts.snapshot_file import dump
from fairlead.kube.client import Client
from fairlead.kube.resources import Raw
from fairlead.kube.timing import Time
from fairlead.ui.model.facts import Facts, Past
from fairlead.ui.reading.file import FileSource
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.serve import pages
from tests.controller.conftest import Lease
from tests.support.commands import invoke
from tests.support.kube import VirtualTime, settle
from tests.support.views_cluster import ClusterMade, WritableApiserver

SAMPLES, HORIZON_S = 4, 86_400.0
AT_ONCE = ("DELAY_S", "FIRST_DELAY_S", "WAITED_S", "SETTINGS_INTERVAL_S", "ADMITTING_S", "QUIET_S")


@dataclass(kw_only=True)
class Answers:
    """`waiting`: what the controller decided of gangs that wait. `gangs`, `queues`: the objects that it wrote. `events`: (name of the object, text)."""

    now: float
    waiting: dict[str, Waiting]
    gangs: dict[str, Raw]
    queues: dict[str, Raw]
    events: tuple[tuple[str, str], ...]
    metrics: dict[tuple[str, ...], float]
    forecast: Forecast
    what_if: Comparison
    facts: Facts
    planned: Facts
    old: bool
    client: WritableApiserver

    @functools.cached_property
    def listed(self) -> dict[str, Raw]:
        """The lines of `fairlead gangs -o json`, by gang."""
        return {f"{each['namespace']}/{each['name']}": each for each in self.cli_json("gangs", "-A")}

    @functools.cached_property
    def table(self) -> dict[str, dict[str, str]]:
        """Those of `fairlead gangs`, by column; columns are two blanks apart, and the last one has sentences."""
        head, *lines = self.cli("gangs", "-A").splitlines()
        titles = head.split()
        rows = [
            dict(zip(titles, re.split(r" {2,}", line.strip(), maxsplit=len(titles) - 1), strict=True)) for line in lines
        ]
        return {f"{row['NAMESPACE']}/{row['GANG']}": row for row in rows}

    @functools.cached_property
    def page_rows(self) -> dict[str, list[str]]:
        """The rows of the page of gangs, by gang: the text of each cell."""
        rows = re.findall(r"<tr id=.*?</tr>", self.marked("/gangs"), flags=re.DOTALL)
        cells = [[plain(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.DOTALL)] for row in rows]
        return {row[0]: row for row in cells}

    def cli(self, *words: str) -> str:
        """What `fairlead WORDS` prints of the same objects at the same time."""

        @contextlib.asynccontextmanager
        async def connect(*_: Any, **__: Any) -> AsyncIterator[WritableApiserver]:
            yield self.client

        with mock.patch.object(Client, "connect", connect), self._time():
            found = invoke([*words])
        assert found.exit_code == 0, found.output
        return found.stdout

    def cli_json(self, *words: str) -> Any:
        return json.loads(self.cli(*words, "-o", "json"))

    @contextlib.contextmanager
    def _time(self) -> Iterator[None]:
        with (
            mock.patch.object(gangs, "time", return_value=self.now),
            mock.patch.object(explain, "time", return_value=self.now),
        ):
            yield

    def page(self, path: str, *, facts: Facts | None = None) -> str:
        """A page without its tags."""
        return plain(self.marked(path, facts=facts))

    def marked(self, path: str, *, facts: Facts | None = None) -> str:
        return self._shown(path, json=False, facts=facts)

    def api(self, path: str, *, facts: Facts | None = None) -> Any:
        return json.loads(self._shown(path, json=True, facts=facts))

    def _shown(self, path: str, *, json: bool, facts: Facts | None) -> str:
        of = facts or self.facts
        match path.strip("/").split("/"):
            case ["gangs"]:
                found = pages.gangs(of, {}, json=json)
            case ["gangs", namespace, name]:
                found = pages.one_gang(of, namespace, name, json=json)
            case ["queues"]:
                found = pages.queue_tree(of, {}, json=json)
            case ["queues", name]:
                found = pages.one_queue(of, of, Past(), name, "24h", json=json)
            case ["map"]:
                found = pages.map_(of, {}, json=json)
            case _:
                found = pages.overview(of, json=json)
        assert found.status == 200, (path, found.text)
        return found.marked if json else found.text


def plain(marked: str) -> str:
    """The text of HTML, without what is drawn, and without badges, which say again what stands elsewhere."""
    marked = re.sub(r'<span class="badge">.*?</span>', "", marked)
    text = re.sub(r"<(script|style|svg).*?</\1>", " ", marked, flags=re.DOTALL)
    text = re.sub(r"</?(?:a|b|bdi|code|time)\b[^>]*>", "", text)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


def ask(made: ClusterMade, tmp_path: Path, *, old: bool = False) -> Answers:
    """`old`: the last forecast was made before what is known now: every gang was to start in a minute."""
    return asyncio.run(_ask(made, tmp_path, old=old))


async def _ask(made: ClusterMade, tmp_path: Path, *, old: bool) -> Answers:
    time, client = VirtualTime(made.now), WritableApiserver(made.lists)
    client.now = made.now
    at_that_time = functools.partial(Time, clock=time.clock, wall=time.clock)
    at_once: Any = dict.fromkeys(AT_ONCE, 0.0)
    with mock.patch.multiple(reporter, **at_once), mock.patch.object(terms, "Time", at_that_time):
        waiting, said, metrics = await _led(client, made.now, old=old)
    snapshot, _ = await observe(client, (names.DRIVER,), wall=time.clock)  # type: ignore[arg-type]
    path = tmp_path / "snapshot.json"
    path.write_bytes(dump(snapshot, made.now))
    # A queue as it is: nothing is changed by it.
    queues = {spec.name: spec for spec in snapshot.queues[:1]}
    same = compare(
        snapshot, made.now, Change(queues=queues), RunTimes([]), horizon_s=HORIZON_S, seed=1, samples=SAMPLES
    )
    live = LiveSource(client, clock=time.clock, wall=time.clock)  # type: ignore[arg-type]
    return Answers(
        now=made.now,
        waiting=waiting,
        gangs={f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": raw for raw in client.lists["gangs"]},
        queues={raw["metadata"]["name"]: raw for raw in client.lists["queues"]},
        events=tuple((each["involvedObject"]["name"], each["message"]) for each in client.lists["events"]),
        metrics=metrics,
        forecast=said,
        what_if=same,
        facts=await live.facts(),
        planned=await FileSource(path).facts(),
        client=client,
        old=old,
    )


async def _led(
    client: WritableApiserver, now: float, *, old: bool
) -> tuple[dict[str, Waiting], Forecast, dict[tuple[str, ...], float]]:
    """A term's look at the cluster, its decision, a forecast and what it writes of them; and its series."""
    caches = Caches(client, (names.DRIVER,))
    await caches.discover(client)  # type: ignore[arg-type]
    metrics = Metrics()
    async with background(*(each.run() for each in caches.all()), ignore=LeaseLostError):
        await caches.filled()
        caches.refresh_all()
        term = terms.Term(ControllerOptions(managed_drivers=(names.DRIVER,)), client, Lease(), metrics, caches)  # type: ignore[arg-type]
        metrics.begin(caches, term.queue_facts, wall=lambda: now)
        async with background(term.reporter.run(), term.recorder.run(), ignore=LeaseLostError):
            await term.controller.run_once()
            snapshot = term.snapshots.build(now)
            said = forecast(snapshot, now, RunTimes([]), seed=1, samples=SAMPLES, horizon_s=HORIZON_S)
            decided = {each.id: each for each in term.queue_facts().waiting}
            if old:
                early = GangForecast(now + 30.0, now + 60.0, "drawn before")
                said = replace(said, gangs=dict.fromkeys(said.gangs, early))
            changed = term.reporting.forecasts.set(said.gangs, now)
            term.reporting.report(changed, now)
            await settle(400)
        series = queue_series.series(term.queue_facts(), Failures(metrics.errors))
        values = {(each.name, *sample.labels.values()): sample.value for each in series for sample in each.samples}
        for each in asyncio.all_tasks() - {
            asyncio.current_task()
        }:  # admissions that are under way, in the context they have
            each.cancel()
        await settle()
        term.close()
    known = {gang: each.within(decided[gang]) if gang in decided else each for gang, each in said.gangs.items()}
    return decided, replace(said, gangs=known), values
