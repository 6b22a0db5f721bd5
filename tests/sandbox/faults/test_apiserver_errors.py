"""The apiserver stumbles: it answers 409, 429 and 500, also to what it has done, and ends watches. Gangs run whole all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.kube import errors
from fairlead.kube.resources import JOBS
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.objects import is_true
from tests.support.sandbox import View, gang_of, job, pod, template, until

Fairlead = tuple[Cluster, View]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
H100 = 'device.attributes["gpu.fairlead.dev"].productName.contains("H100")'


async def complete(view: View, name: str, *, timeout_s: float = 40.0) -> None:
    async def done() -> bool:
        try:
            found = await view.get(JOBS, name)
        except errors.ApiError:
            return False
        return found is not None and is_true(found, "Complete")

    await until(done, timeout_s=timeout_s, what=f"job {name} is complete")


TROUBLE: list[dict[str, Any]] = [
    {"code": 409, "verb": "update", "resource": "resourceclaims", "count": 10},
    {"code": 409, "verb": "patch", "resource": "resourceclaims", "count": 10},
    {"code": 429, "count": 30, "retry_after_s": 1},
    {"code": 500, "resource": "resourceclaims", "count": 12},
    {"code": 500, "resource": "resourceclaims", "count": 6, "after": True},
    {"code": 500, "verb": "patch", "resource": "pods", "count": 6},
    {"code": 500, "verb": "patch", "resource": "pods", "count": 6, "after": True},
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda t: "-".join(str(v) for v in t.values()))
async def test_gangs_run_whole_although_the_apiserver_answers_with_errors(
    shared: Fairlead, trouble: dict[str, Any]
) -> None:
    made, view = shared
    await made.apply([template("two", count=2, selector=H100)])
    wanted = [job(n, pod("x", claim="two", annotations=gang_of(n)), size=5) for n in ("a", "b")]
    made.server.faults.fail(**trouble)

    async def applied() -> bool:
        try:
            await made.apply(wanted)
        except errors.ApiError:
            return False
        return True

    await until(applied)
    for name in ("a", "b"):
        await complete(view, name)
    made.server.faults.clear()


async def disturbed(work: Awaitable[None], disturb: Callable[[], object]) -> None:
    """Do the work while something is disturbed ten times a second."""

    async def again() -> None:
        while True:
            disturb()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(again())
    try:
        await work
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gangs_run_whole_although_every_watch_is_closed_again_and_again(shared: Fairlead) -> None:
    made, view = shared
    await made.apply([template("two", count=2, selector=H100)])

    async def work() -> None:
        await made.apply([job(n, pod("x", claim="two", annotations=gang_of(n)), size=5) for n in ("a", "b")])
        for name in ("a", "b"):
            await complete(view, name)

    await disturbed(work(), made.server.faults.close_watches)
