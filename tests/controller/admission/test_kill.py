"""The controller is killed at every write of the protocol; the next one completes or undoes, and nothing leaks.

"Before": the write never left. "After": it arrived, and the answer did not. A killed controller writes nothing more.
Invariants, looked at through every change of every claim: no device in two claims; no pod released unless all claims of
its gang are written.
"""

import pytest

from tests.controller.conftest import Bench, Life

GANG = 3
STEPS_MAX = 40


@pytest.fixture(params=[False, True], ids=["generated", "named"])
def named(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def one_life(bench: Bench, step: int, *, after: bool) -> bool:
    """One gang, one controller killed at write `step`, one that is not. False when the gang needed fewer writes."""
    life = Life(step, after=after)
    pods = await bench.gang(f"g{step}", GANG, template="four")
    await bench.mortal(life, lambda: bench.bound(pods))
    released = [pod for pod in pods if not bench.gated([pod])]
    if released:
        assert len(bench.allocated()) == GANG, f"step {step}: {released} released early\n{bench.describe()}"
    async with bench.controller():
        await bench.until(lambda: bench.running(pods), f"the gang is whole after step {step}: {life.done}")
        assert bench.watchdog.held == 4 * GANG
        bench.check()
        await bench.delete(pods)
        await bench.until(lambda: bench.watchdog.held == 0, f"all is given back after step {step}")
        await bench.until(lambda: bench.claims.all() == [], f"no claim is left after step {step}")
    return life.left is not None and life.left <= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_leaves_a_gang_that_the_next_one_makes_whole(
    bench: Bench, after: bool, named: bool
):
    """For generated claims, which take fewer kinds of writes, every other write: odd ones before, even ones after."""
    await bench.template("four", 4)
    for step in range(1, STEPS_MAX) if named else range(1 + after, STEPS_MAX, 2):
        if not await one_life(bench, step, after=after):
            assert step >= 3 * GANG
            return
    raise AssertionError("the protocol has more writes than expected")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_controller_killed_again_and_again_gets_there(bench: Bench):
    """Each life is a little longer: one too short to take back what the last one left cannot get on."""
    await bench.template("four", 4)
    pods = await bench.gang("unlucky", GANG, template="four")
    lives = 0
    while not bench.bound(pods):
        lives += 1
        assert lives < 30, bench.describe()
        await bench.mortal(Life(2 + lives // 2, after=lives % 2 == 0), lambda: bench.bound(pods))
        bench.check()
    await bench.until(lambda: bench.running(pods), "the gang runs")
    assert bench.watchdog.held == 4 * GANG


@pytest.mark.slow
async def test_a_half_written_gang_that_can_no_longer_be_completed_is_undone(bench: Bench):
    """A member is deleted while no replica leads: the claims of the others are deallocated, and they wait."""
    await bench.template("four", 4)
    pods = await bench.gang("broken", GANG, template="four")
    await bench.mortal(Life(2, after=True, allocations=True), lambda: False)
    await bench.until(lambda: len(bench.allocated()) >= 2, "two claims are allocated")
    await bench.delete(pods[:1])
    async with bench.controller():
        await bench.until(lambda: bench.gated(pods[1:]) and bench.watchdog.held == 0, "the rest is undone")
        assert bench.status("broken").get("phase") in {"Gathering", "Waiting", None}
        again = await bench.pod("broken-0b", template="four", gang="broken", size=GANG)
        await bench.until(lambda: bench.running([*pods[1:], again.metadata.name]), "whole again, it runs")
