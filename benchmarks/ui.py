"""What a page costs: to read the lists of a cluster, and to answer each address, in CPU time of the server; and its size as it is sent.

The cluster has 500 nodes of eight GPUs, 100 of them MIG-capable with every placement published, and 10,000 gangs that wait. Times are
the best of several, beside a heap that is frozen as `fairlead ui` freezes it.
Bars: the map of the cluster and the page of time in 200 ms, every page below 100 kB.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.measured import figure, timed
from fairlead.kube.garbage import frozen_heap
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.time_chart import Choice
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import Shown
from tests.support import pasts, ui

NODES = 500
WAITING = 10_000
REPEATED = 5


def figures() -> list[dict[str, Any]]:
    apiserver = ui.Apiserver(ui.a_cluster(NODES, waiting=WAITING))
    gc.collect()
    times = ui.Times()
    source = ui.source(apiserver, times)
    first_s, facts = timed(lambda: asyncio.run(source.facts()))
    times.now += 60
    again_s, facts = timed(lambda: asyncio.run(source.facts()))
    found = [
        figure(f"ui/{NODES}x{ui.GPUS}/read-first", first_s * 1e3, "ms"),
        figure(f"ui/{NODES}x{ui.GPUS}/read-again", again_s * 1e3, "ms"),
    ]
    with frozen_heap():
        for name, show, bar in (*_pages(facts), *_times(facts)):
            show()
            best_s, shown = min((timed(show) for _ in range(REPEATED)), key=lambda each: each[0])
            found += [
                figure(f"ui/{name}/cpu", best_s * 1e3, "ms", bar),
                figure(f"ui/{name}/sent", len(gzip.compress(shown.text.encode(), 6)) / 1e3, "kB", 100.0),
            ]
    return found


def _pages(facts: Facts) -> list[tuple[str, Callable[[], Shown], float | None]]:
    kept = pages.Kept.new()
    return [
        ("overview", lambda: pages.overview(facts, json=False, kept=kept), None),
        (f"map-{NODES}x{ui.GPUS}", lambda: pages.map_(facts, {}, json=False, kept=kept), 200.0),
        ("queues", lambda: pages.queue_tree(facts, {}, json=False), None),
        (f"gangs-{WAITING}", lambda: pages.gangs(facts, {"page": "50"}, json=False), None),
        ("gang", lambda: pages.one_gang(facts, "team-0", "wait-00000", json=False), None),
    ]


def _times(facts: Facts) -> list[tuple[str, Callable[[], Shown], float | None]]:
    """The page of time with 10,000 gangs: half of them wait, half came and went in a day. What is made of the ledger's answer is kept."""
    half = replace(facts, gangs=facts.gangs[-WAITING // 2 :], pods=())
    past = pasts.a_past(*pasts.busy(WAITING // 2, nodes=NODES))
    by_queue, by_node = Choice(window="24h"), Choice(window="24h", by="node")
    return [
        (f"time-by-queue-{WAITING}", lambda: pages.time(half, past, by_queue, json=False), 200.0),
        (f"time-by-node-{WAITING}", lambda: pages.time(half, past, by_node, json=False), 200.0),
    ]
