"""The bounds of CPU time that tests set: exceeded they fail, on a slower machine they are wider, and nothing is collected meanwhile."""

import gc
import time

import pytest

from tests.support import cpu


def burn(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


def test_what_takes_more_than_its_bound_fails() -> None:
    with cpu.at_most(10.0):
        burn(0.01)
    with pytest.raises(AssertionError, match=r"0\.\d\d s of CPU time, at most 0\.001 are allowed"), cpu.at_most(0.001):
        burn(0.1)


@pytest.mark.parametrize(("loops", "seconds"), [((0.001, 0.001), 0.1), ((0.02, 0.01), 0.05), ((0.01, 0.05), 0.02)])
def test_the_slower_loop_says_how_slow_the_machine_is_and_a_fast_one_narrows_no_bound(
    loops: tuple[float, float], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(loops)
    monkeypatch.setattr(cpu, "_loop_s", lambda: next(told))
    with cpu.measured() as spent:
        burn(0.1)
    assert seconds <= spent.seconds < seconds * 2


def test_garbage_is_not_collected_meanwhile_and_is_afterwards_also_where_the_block_fails() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError, match="False"), cpu.measured():
        raise KeyError(gc.isenabled())
    assert gc.isenabled()
