"""What tests of the leader's series share: facts, caches with claims, and scrapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import aiohttp
import msgspec
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fairlead.api import names
from fairlead.controller.book.book import Wait
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.report.queue_series import QueueFacts
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import QueueUse, Waiting
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import core, resource

Series = dict[tuple[str, ...], float]


def values(families: Iterable[Metric], name: str) -> Series:
    """By the values of its labels."""
    (family,) = (each for each in families if each.name == name)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples if sample.name == name}


def waiting(gang: str, queue: str | None, code: Code, **asks: int | Fraction) -> Waiting:
    return Waiting(
        namespace="ml",
        name=gang,
        uid=gang,
        queue=queue,
        position=1,
        reason=Reason(code=code, message="waits"),
        asks=asks,
    )


def facts(
    *gangs: Waiting, uses: tuple[QueueUse, ...] = (), waits: Mapping[GangId, Wait] | None = None, **targets_s: float
) -> QueueFacts:
    return QueueFacts(uses=uses, waiting=gangs, waits=waits or {}, targets_s=targets_s, wall=1000.0)


def allocated(number: int, *, holds: bool = True) -> resource.ResourceClaim:
    results = [{"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": f"gpu-{number}"}]
    return msgspec.convert(
        {
            "metadata": {"namespace": "ml", "name": f"c{number}", "uid": f"u{number}", "resourceVersion": str(number * 2 + (not holds))},
            "status": {"allocation": {"devices": {"results": results}}} if holds else {},
        },
        resource.ResourceClaim,
    )  # fmt: skip


def user(number: int) -> core.Pod:
    return msgspec.convert(
        {
            "metadata": {"namespace": "ml", "name": f"p{number}", "uid": f"p{number}", "resourceVersion": "1",
                         "annotations": {"fairlead.dev/gang": f"g{number // 2}"}},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{number}"}]},
        },
        core.Pod,
    )  # fmt: skip


def claim_caches(number: int) -> Caches:
    nowhere: Any = None
    caches = Caches(nowhere, (names.DRIVER,))
    for each in range(number):
        caches.pods.note(user(each))
        caches.claims.note(allocated(each))
    return caches


async def becomes(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(30):
            while True:
                if await holds():
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within 30 s: {what}") from None


async def scraped(port: int) -> list[Metric]:
    """Labels are in the order of their names."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return list(text_string_to_metric_families(await answer.text()))
