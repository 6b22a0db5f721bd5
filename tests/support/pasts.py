"""What a ledger says of a day, made up: for the pages that show the past."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from fairlead.history.ledger.entries import Gap, Span, Wait
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.facts import Past
from tests.support.ui import NOW

HOUR = 3600.0


def span(
    gang: str, begin_h: float, end_h: float | None, *, namespace: str = "team-0", queue: str = "queue-0", node: str = "node-000",
    claim: str = "", ended_by: str = "Completed", lost: bool = False, flavor: str = "h100", amount: int = 1,
) -> Span:  # fmt: skip
    """Hours before `NOW`; `end_h` None: it goes on."""
    return Span(
        namespace=namespace,
        queue=queue,
        gang=gang,
        claim=claim or f"{gang}-gpu",
        allocated_us=us(begin_h),
        node=node,
        flavor=flavor,
        amount=Fraction(amount),
        share_ppm=1_000_000,
        start_us=us(begin_h),
        end_us=us(end_h or 0.0),
        goes_on=end_h is None,
        ended_by="" if end_h is None else ended_by,
        lost=lost,
    )


def us(hours_ago: float) -> int:
    return round((NOW - hours_ago * HOUR) * SECOND_US)


def wait(gang: str, queued_h: float, admitted_h: float, *, namespace: str = "team-0", queue: str = "queue-0") -> Wait:
    return Wait(queue=queue, namespace=namespace, gang=gang, queued_us=us(queued_h), admitted_us=us(admitted_h))


def a_past(*spans: Span, waits: tuple[Wait, ...] = (), gaps: tuple[Gap, ...] = ()) -> Past:
    return Past(spans=spans, waits=waits, gaps=gaps, known_us=(us(24 * 30), us(0)), window_us=(us(24), us(0)))


def busy(gangs: int, *, queues: int = 5, nodes: int = 6, hours: float = 24.0, seed: int = 1) -> Iterator[Span]:
    """Gangs of one to eight devices that came and went within these hours."""
    dice = random.Random(seed)
    for number in range(gangs):
        team = number % queues
        begin = dice.uniform(0.1, hours)
        end = max(0.0, begin - dice.lognormvariate(0.0, 1.0) * 0.3 - 0.02)
        for device in range(dice.choice([1, 1, 2, 4, 8])):
            yield span(
                f"past-{number:05}",
                begin,
                end,
                namespace=f"team-{team}",
                queue=f"queue-{team}",
                node=f"node-{dice.randrange(nodes):03}",
                claim=f"past-{number}-{device}",
                ended_by=dice.choice(["Completed", "Completed", "Completed", "Evicted", "Failed"]),
            )
