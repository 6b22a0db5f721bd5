"""What it costs to stop a gang: the work that it loses and the time until it runs again. And whether it may be moved at all.

Work since the last checkpoint is lost; a gang that says nothing of checkpoints loses all since its start. What a restart takes is
known from earlier runs, else `RESTART_S` counts.
Example: 4 GPUs, started 2 h ago, saved 10 min ago, restarts in 90 s: 4 x (600 + 90) = 2,760 GPU-seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.gangs import RunningGang

RESTART_S = 300.0  # where no earlier run is known


def saved_at(gang: RunningGang, started: float) -> float:
    """Since when its work is not saved; unix seconds. A time before its start says nothing of this run."""
    return started if gang.checkpointed is None else max(started, gang.checkpointed)


def restart_s(gang: RunningGang) -> float:
    return RESTART_S if gang.restart_s is None else gang.restart_s


def settled_at(gang: RunningGang) -> float:
    """From when on it may move for others: it has run for as long as it takes to start again. Unix seconds."""
    return gang.started + restart_s(gang)


def works_since(gang: RunningGang, started: float) -> float:
    """Larger where less is lost: since when its work is not saved, earlier by what its restart takes, where that is known."""
    return saved_at(gang, started) - (gang.restart_s or 0.0)


def gpu_seconds(gang: RunningGang, devices: int, now: float) -> float:
    """What stopping it now costs."""
    return devices * (max(0.0, now - saved_at(gang, gang.started)) + restart_s(gang))


def movable(gang: RunningGang, queue: Queue) -> bool:
    """As its own annotation says, else its queue, or one above it; at last not."""
    if gang.relocation is None:
        return False
    if gang.movable is not None:
        return gang.movable
    return next((step.spec.movable for step in queue.path() if step.spec.movable is not None), False)
