"""Keys are queued once, reconciled by one worker at a time, and queued again later after failures. In virtual time."""

import asyncio
from random import Random

import pytest

from fairlead.kube.limits import Backoff, TokenBucket
from fairlead.kube.workqueue import WorkQueue
from tests.support.kube import VirtualTime, settle


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def queue(time: VirtualTime) -> WorkQueue[str]:
    backoff = Backoff(base_s=1, factor=2, max_s=8, jitter=0)
    return WorkQueue(backoff=backoff, clock=time.clock, sleep=time.sleep, random=Random(1))


async def test_a_key_added_during_its_pass_comes_again_after_it_and_never_beside_it(queue):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await settle()
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"


async def test_failures_come_back_later_each_time_up_to_a_limit(queue, time):
    delays = []
    for _ in range(6):
        queue.add("a")
        key = await queue.get()
        delays.append(queue.retry(key))
        queue.done(key)
    assert delays == [1, 2, 4, 8, 8, 8]
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_a_delayed_key_waits_its_time_and_a_fresh_change_overtakes_the_delay(queue, time):
    queue.add_after("a", 10)
    queue.add_after("a", 30)
    waiting = asyncio.create_task(queue.get())
    await time.advance(9.9)
    assert not waiting.done()
    await time.advance(0.2)
    assert waiting.done()
    assert waiting.result() == "a"
    queue.done("a")
    queue.add_after("b", 10)
    queue.add("b")
    assert await queue.get() == "b"
    queue.done("b")
    await time.advance(20)
    assert len(queue) == 0


async def test_a_bucket_lets_a_burst_through_and_then_its_rate(time):
    bucket = TokenBucket(qps=10, burst=3, clock=time.clock, sleep=time.sleep)
    passed = 0

    async def take() -> None:
        nonlocal passed
        await bucket.take()
        passed += 1

    tasks = [asyncio.create_task(take()) for _ in range(8)]
    await settle()
    assert passed == 3
    await time.advance(0.25)
    assert passed == 5
    await time.advance(0.25)
    assert passed == 8
    await asyncio.gather(*tasks)


async def test_one_key_wakes_one_worker(time):
    """Also a key that comes due: eight workers that wait cost no more than one."""
    promoted = 0

    class Counting(WorkQueue[str]):
        def _promote(self) -> float | None:
            nonlocal promoted
            promoted += 1
            return super()._promote()

    queue = Counting(clock=time.clock, sleep=time.sleep, random=Random(1))
    workers = [asyncio.create_task(queue.get()) for _ in range(8)]
    await settle()
    promoted = 0
    queue.add_after("later", 5)
    queue.add("now")
    await settle()
    assert (promoted, sum(worker.done() for worker in workers)) == (1, 1)
    await time.advance(5)
    assert (promoted, sum(worker.done() for worker in workers)) == (2, 2)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
