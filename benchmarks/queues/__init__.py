"""Queues: whole scenarios of others replayed in virtual time, and reclaim; decisions only, one core.

`make bench BENCH=queues` shows one table. What is measured and how is said in `replay` and `reclaim`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.queues.reclaim import reclaim_figures
from benchmarks.queues.replay import replay_figures


def figures() -> list[dict[str, Any]]:
    return [*reclaim_figures(), *replay_figures()]
