"""Each example, as a user applies it, keeps its promises; afterwards nothing is left behind."""

import pytest

from fairlead.cli.demo import cases

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

FINISH_TIMEOUT_S = 90.0
RELEASE_TIMEOUT_S = 60.0
LONG = {"03-two-gangs", "07-reclaim"}  # run by `make slow`


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case.folder in LONG else ()) for case in cases.CASES],
    ids=lambda case: case.folder,
)
async def test_an_example_keeps_its_promises(site, case):
    observer = site.observer
    if case.driver and not any(each.spec.driver == case.driver for each in observer.slices()):
        pytest.skip(f"no device of {case.driver} is published here")
    try:
        for number, path in enumerate(case.paths):
            if number:
                assert await observer.until(lambda: case.running(observer.history), timeout_s=FINISH_TIMEOUT_S)
            await site.apply(path)
        finished = await observer.until(lambda: case.finished(observer.history), timeout_s=FINISH_TIMEOUT_S)
        assert finished, f"{case.folder}: not finished after {FINISH_TIMEOUT_S:.0f}s: {_standing(observer.history)}"
        assert case.failures(observer.history, observer.attributes) == []
        assert observer.history.double_use == []
    finally:
        for path in case.paths:
            await site.delete(path)
    released = await observer.until(lambda: not _held(observer.history), timeout_s=RELEASE_TIMEOUT_S)
    assert released, f"still allocated: {_held(observer.history)}"


def _held(history):
    return [
        f"{claim.namespace}/{claim.name}"
        for claim in history.claims.values()
        if (claim.allocated or claim.reserved) and claim.namespace in cases.NAMESPACES
    ]


def _standing(history):
    return {
        f"{gang.key.namespace}/{gang.key.name}": ([pod.phase for pod in gang.pods], gang.reasons[-1:])
        for gang in history.gangs(cases.NAMESPACES)
    }
