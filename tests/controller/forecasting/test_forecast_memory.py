"""What a forecast's process may take of memory: read from the kernel's files, bounded while it computes, told where it is too little."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.forecasting import forecaster
from fairlead.controller.forecasting.forked import (
    HEADROOM_MIN_BYTES,
    UNKNOWN_BYTES,
    Failure,
    Forked,
    Memory,
    bound_bytes,
)
from fairlead.controller.report import reporter
from fairlead.kube import timestamps
from tests.controller.conftest import Bench
from tests.support.children import children

MIB = 1 << 20
GIB = 1 << 30


def kernel(root: Path, files: Mapping[str, object]) -> Memory:
    """What the kernel shows, with these files under /sys/fs/cgroup (`cgroup/…`) and /proc (`proc/…`)."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Memory(root / "cgroup", root / "proc")


MEMINFO: dict[str, object] = {
    "proc/meminfo": f"MemTotal:       {16 * MIB} kB\nMemFree:          1024 kB\nMemAvailable:   {8 * MIB} kB"
}
V2: dict[str, object] = {
    **MEMINFO,
    "proc/self/cgroup": "0::/",
    "cgroup/memory.max": 4 * GIB,
    "cgroup/memory.high": "max",
    "cgroup/memory.current": 3 * GIB,
    "cgroup/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB // 2}\nactive_file 77",
}
V1: dict[str, object] = {
    **MEMINFO,
    "proc/self/cgroup": "5:memory:/kubepods/pod-1/c1\n2:cpu,cpuacct:/\n1:name=systemd:/",
    "cgroup/memory/memory.limit_in_bytes": 4 * GIB,
    "cgroup/memory/memory.usage_in_bytes": 2 * GIB,
    "cgroup/memory/memory.stat": f"cache 5\ninactive_file 1\ntotal_inactive_file {GIB}",
}


PART_OF_POD: dict[str, object] = {
    "proc/self/cgroup": "0::/pod/container",
    "cgroup/pod/container/memory.max": "max",
    "cgroup/pod/container/memory.current": GIB,
    "cgroup/pod/memory.max": 2 * GIB,
    "cgroup/pod/memory.current": GIB,
}
POD_OF_V1: dict[str, object] = {
    "cgroup/memory/kubepods/pod-1/memory.limit_in_bytes": GIB,
    "cgroup/memory/kubepods/pod-1/memory.usage_in_bytes": GIB // 4,
}
HEADROOMS: dict[str, tuple[Mapping[str, object], int | None]] = {
    "v2: the limit less what is in use, without what can be dropped": (V2, 3 * GIB // 2),
    "v2: memory.high is a limit, too": (V2 | {"cgroup/memory.high": 3 * GIB}, GIB // 2),
    "v2: no limit, so what the machine has": (V2 | {"cgroup/memory.max": "max"}, 8 * GIB),
    "v2: the machine has less than the limit": (V2 | {"cgroup/memory.max": 64 * GIB}, 8 * GIB),
    "v2: never less than nothing": (V2 | {"cgroup/memory.current": 5 * GIB}, 0),
    "v2: the limit of a cgroup above counts": (V2 | PART_OF_POD, GIB),
    "v2: a place that is not seen": (V2 | {"proc/self/cgroup": "0::/../other"}, 3 * GIB // 2),
    "v1: as a container sees its own": (V1, 3 * GIB),
    "v1: no limit is a huge one": (V1 | {"cgroup/memory/memory.limit_in_bytes": 9223372036854771712}, 8 * GIB),
    "v1: the limit of a cgroup above counts": (V1 | POD_OF_V1, 3 * GIB // 4),
    "a limit that cannot be read is none": (V2 | {"cgroup/memory.max": "garbage"}, 8 * GIB),
    "nor is one whose use cannot be read": (V2 | {"cgroup/memory.current": ""}, 8 * GIB),
    "a stat that is broken": (V2 | {"cgroup/memory.stat": "inactive_file\nx y z\n\xff"}, GIB),
    "no cgroup at all": (MEMINFO, 8 * GIB),
    "nothing can be read": ({"proc/meminfo": "MemAvailable: many kB"}, None),
    "nothing is there": ({}, None),
}


@pytest.mark.parametrize(("files", "headroom"), HEADROOMS.values(), ids=HEADROOMS)
def test_the_headroom_is_what_is_left_before_a_limit_is_reached(
    tmp_path: Path, files: Mapping[str, object], headroom: int | None
):
    assert kernel(tmp_path, files).headroom() == headroom


def test_a_forecast_may_take_half_of_the_headroom_and_is_not_made_where_that_is_little():
    assert bound_bytes(4 * GIB) == 2 * GIB
    assert bound_bytes(HEADROOM_MIN_BYTES) == HEADROOM_MIN_BYTES // 2
    assert bound_bytes(HEADROOM_MIN_BYTES - 1) is None
    assert bound_bytes(0) is None
    assert bound_bytes(None) == UNKNOWN_BYTES


def grows() -> int:
    """A GiB within a second or two, were it not ended."""
    held = []
    for _ in range(256):
        held.append(bytearray(b"x" * (4 * MIB)))
        time.sleep(0.005)
    return len(held)


async def test_a_process_that_takes_more_than_its_bound_is_ended():
    before = children()  # of tests before this one
    if Memory().private(os.getpid()) is None:
        pytest.skip("there is no /proc/PID/smaps_rollup here")
    forked = Forked(grows, bound_bytes=96 * MIB)
    began = time.monotonic()
    assert await forked.answer(60.0) is None
    assert time.monotonic() - began < 30
    assert forked.failure is Failure.MEMORY
    assert 96 * MIB < forked.peak_bytes < 900 * MIB
    assert forked.text.startswith("its process took ")
    assert forked.text.endswith(" MiB of memory, more than the 96 MiB that it may")
    assert children() <= before, "none is left behind"


def hangs() -> int:
    time.sleep(30)
    return 1


def pauses() -> int:
    time.sleep(0.3)
    return 1


class Growing(Memory):
    """A process that has more each time it is looked at."""

    def __init__(self, *seen: int | None) -> None:
        super().__init__()
        self.seen = list(seen)

    def private(self, pid: int) -> int | None:
        return self.seen.pop(0) if self.seen else None


async def test_a_process_whose_memory_cannot_be_read_is_bounded_by_time():
    forked = Forked(pauses, bound_bytes=1, memory=Growing())
    assert await forked.answer(20.0) == 1
    late = Forked(hangs, bound_bytes=1, memory=Growing())
    assert await late.answer(0.3) is None
    assert (late.failure, late.text) == (Failure.LATE, "its process took longer than 0.3 s")


@pytest.mark.slow
async def test_what_a_process_took_of_cpu_time_is_told_also_where_it_was_ended():
    def computes(seconds: float) -> int:
        ends = time.process_time() + seconds
        while time.process_time() < ends:
            pass
        return 1

    forked = Forked(lambda: computes(0.2))
    assert await forked.answer(60.0) == 1
    assert 0.15 < forked.cpu_s < 1.0
    ended = Forked(lambda: computes(60.0))
    assert await ended.answer(3.0) is None
    assert ended.cpu_s > 0.1


async def test_why_a_computation_failed_is_told():
    def fails() -> int:
        raise ValueError("no")

    before = children()
    for work, text in (
        (fails, "it failed: ValueError('no')"),
        (lambda: os._exit(3), "its process ended without an answer"),
    ):
        failed = Forked(work)
        assert await failed.answer(10.0) is None
        assert (failed.failure, failed.text) == (Failure.DIED, text)
    assert children() <= before, "none is left behind"


class Little(Memory):
    left: int | None = 64 * MIB

    def headroom(self) -> int | None:
        return self.left


async def test_without_headroom_no_process_is_forked_and_it_is_said_once_and_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name in ("SETTLE_S", "LEAST_S", "REFRESH_S"):
        monkeypatch.setattr(forecaster, name, 0.1)
    monkeypatch.setattr(forecaster, "STALE_S", 0.5)
    for name in ("CPU_PART", "IDLE_CPU_PART"):
        monkeypatch.setattr(forecaster, name, 1.0)
    monkeypatch.setattr(reporter, "QUIET_S", 0.2)
    memory, forks = Little(), []

    class Counted(Forked[Any]):
        def __init__(self, *args: Any, **more: Any) -> None:
            forks.append(memory.left)
            super().__init__(*args, **more)

    monkeypatch.setattr(forecaster, "Forked", Counted)
    monkeypatch.setattr(forecaster, "Memory", lambda: memory)
    memory.left = 4 * GIB
    caplog.set_level(logging.INFO, forecaster.log.name)
    await bench.template("node", 8)
    expected = {names.EXPECTED_END: timestamps.seconds(time.time() + 600)}

    def because() -> str:
        return str(bench.status("second").get("forecast", {}).get("because", ""))

    async with bench.controller(forecast=True):
        first = await bench.gang("first", 2, template="node", annotations=expected)
        await bench.until(lambda: bench.running(first), "the first gang runs")
        await bench.gang("second", 2, template="node")
        await bench.until(lambda: "samples" in because(), "a forecast")
        said = bench.status("second")["forecast"]
        memory.left = 64 * MIB
        await bench.until(lambda: because().startswith("no newer forecast: "), "the forecast says that it is old")
        stale = bench.status("second")["forecast"]
        assert {**stale, "because": ""} == {**said, "because": ""}, "as of when it was made"
        assert because().startswith(
            "no newer forecast: the controller's container has 64 MiB of memory left, and a forecast is made from 256 MiB on; "
            "raise its limit; "
        )
        memory.left = 4 * GIB
        await bench.until(lambda: "samples" in because() and "no newer" not in because(), "a newer forecast")
    assert set(forks) == {4 * GIB}, "none was forked without headroom"
    lines = [record.getMessage() for record in caplog.records if "forecast" in record.getMessage()]
    assert [line.partition(":")[0] for line in lines] == ["no forecast", "forecasts are made again"]
