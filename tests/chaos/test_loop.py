"""The virtual loop: time that jumps, processes that wait and die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.chaos.loop import NothingLeftError, Process, VirtualLoop
from tests.chaos.virtual import CLOCK

KEPT: list[object] = []
"""Nothing of a process that was killed may run: were its tasks collected, their `finally` would."""


@pytest.fixture
def loop() -> VirtualLoop:
    CLOCK.now = 0.0
    made = VirtualLoop()
    KEPT.append(made)
    return made


async def tick(seen: list[tuple[str, float]], name: str) -> None:
    try:
        while True:
            await asyncio.sleep(1.0)
            seen.append((name, CLOCK.now))
    finally:
        seen.append((f"{name} ended", CLOCK.now))


def run(loop: VirtualLoop, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.run_until_complete(main())


def test_a_paused_process_does_what_was_due_when_it_goes_on(loop: VirtualLoop):
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        process = Process("a", loop)
        KEPT.append(process)
        process.spawn(tick(seen, "a"))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(3.0)
        process.resume()
        await asyncio.sleep(1.2)

    run(loop, main)
    assert seen == [("a", 1.0), ("a", 4.5), ("a", 5.5)]


def test_nothing_of_a_killed_process_runs_not_even_its_finally(loop: VirtualLoop):
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        process = Process("a", loop)
        KEPT.append(process)
        process.spawn(tick(seen, "a"))
        process.on_kill.append(lambda: seen.append(("killed", CLOCK.now)))
        await asyncio.sleep(1.5)
        process.kill()
        process.kill()
        await asyncio.sleep(5.0)

    run(loop, main)
    assert seen == [("a", 1.0), ("killed", 1.5)]


def test_what_a_process_starts_is_its_own(loop: VirtualLoop):
    seen: list[str] = []

    async def child() -> None:
        await asyncio.to_thread(seen.append, "thread")
        await asyncio.sleep(1.0)
        seen.append("child")

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def main() -> None:
        process = Process("a", loop)
        KEPT.append(process)
        process.spawn(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(1.0)

    run(loop, main)
    assert seen == ["thread"]


def test_a_wait_that_nothing_will_end_is_an_error_and_no_hang(loop: VirtualLoop):
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeftError):
        run(loop, main)


def test_work_in_threads_takes_as_long_as_the_process_says(loop: VirtualLoop):
    async def main() -> None:
        process = Process("a", loop)
        KEPT.append(process)
        process.thread_s = 5.0
        await process.spawn(asyncio.to_thread(lambda: 1))

    run(loop, main)
    assert 0 < CLOCK.now <= 5.0
