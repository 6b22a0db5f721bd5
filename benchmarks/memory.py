"""What forecasts and the flight recorder take of the controller's memory, and of its loop's time, on a crowded cluster.

    python -m benchmarks memory
    python -m benchmarks memory -- --nodes=1000 --waiting=500 --mig

Every GPU is held; the nodes are what our driver publishes for an HGX H100, with `--mig` with every placement of every MIG profile. The
process has the tables of the decisions and, as the controller's caches do, each pod and claim. While the forecast's process computes, a decision
is made here, as on a live controller: what that writes is copied, too. The process's own memory is the kernel's figure (smaps_rollup, Linux only),
the recorder's is Python's of what it allocates (tracemalloc). The bar of a forecast: what it may take where the chart's limit holds.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.allocator import _cluster
from benchmarks.protocol.objects import claim_spec, pod_spec
from fairlead.api import names
from fairlead.controller.forecasting import forked
from fairlead.controller.forecasting.forecaster import compute
from fairlead.controller.forecasting.forked import Forked, bound_bytes
from fairlead.controller.forecasting.history import RunHistory
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.history.recording.recorder import QUEUE_MAX, FlightRecorder
from fairlead.history.recording.writer import Bounds, RecordingWriter
from fairlead.kube import core, resource
from fairlead.kube.garbage import frozen_heap
from tests.support.forecast.clusters import crowded

MIB = 1 << 20
LIMIT_BYTES = 4 << 30  # manifests/chart/values.yaml
FORKS = 3
TIMEOUT_S = 600.0
STATUS = Path("/proc/self/status")


def figures(*words: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory --")
    parser.add_argument("--nodes", type=int, default=10_000, help="of eight GPUs")
    parser.add_argument("--waiting", type=int, default=2_000, help="gangs")
    parser.add_argument("--mig", action="store_true", help="with every placement of every MIG profile")
    options = parser.parse_args(words)
    world = _cluster(options.nodes, partitioned=options.mig)
    snapshot, now = crowded(nodes=options.nodes, waiting=options.waiting, world=world)
    kept = list(_cached(snapshot))
    engine = Engine()
    engine.decide(snapshot, now)
    label = f"memory/{options.nodes}x8{'-mig' if options.mig else ''}/{options.waiting}"
    forked.NICE = 0  # on a busy machine it would take minutes
    with frozen_heap():
        found = [
            _figure(f"{label}/controller", _resident("VmRSS") / MIB, "MiB", None, gangs=len(snapshot.running)),
            *_forecast(label, snapshot, now, engine),
            *_recorder(label, snapshot, now, engine),
        ]
    assert kept
    return found


def _cached(snapshot: Snapshot) -> Iterator[object]:
    """A pod and a claim for each that a running gang has, as informers keep them."""
    pods, claims = msgspec.json.Decoder(core.Pod), msgspec.json.Decoder(resource.ResourceClaim)
    stamp = "2026-11-20T08:00:00Z"
    for gang in snapshot.running:
        for member in gang.members:
            meta: dict[str, Any] = {
                "name": member.pod.name, "namespace": "ml", "uid": f"0fe3a1d2-6c1b-4d0e-9b5a-{member.pod.uid}", "creationTimestamp": stamp,
                "resourceVersion": f"1{len(gang.name)}77{member.node[-5:]}", "labels": {"job-name": gang.name, "team": gang.queue},
                "annotations": {names.GANG: gang.name, names.GANG_SIZE: str(gang.size), names.QUEUE: gang.queue},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": gang.name, "uid": f"u-{gang.uid}", "controller": True}],
            }  # fmt: skip
            conditions = [{"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in ("Ready", "PodScheduled", "Initialized")]  # fmt: skip
            status = {"phase": "Running", "conditions": conditions, "startTime": stamp}
            spec = {**pod_spec(claim=member.claims[0]), "nodeName": member.node}
            yield pods.decode(msgspec.json.encode({"metadata": meta, "spec": spec, "status": status}))
            results = [{"request": "gpu", "driver": names.DRIVER, "pool": member.node, "device": "gpu-0"}]
            allocation = {"devices": {"results": results}, "allocationTimestamp": stamp}
            reserved = [{"resource": "pods", "name": member.pod.name, "uid": meta["uid"]}]
            owned = {
                **meta,
                "name": member.claims[0],
                "uid": f"c-{meta['uid']}",
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            }
            claim = {
                "metadata": owned,
                "spec": claim_spec(),
                "status": {"allocation": allocation, "reservedFor": reserved},
            }
            yield claims.decode(msgspec.json.encode(claim))


# -- forecasts -----------------------------------------------------------------------------------------------------


def _forecast(label: str, snapshot: Snapshot, now: float, engine: Engine) -> Iterator[dict[str, Any]]:
    history = RunHistory()
    history.note(snapshot.gangs, snapshot.running, now, lambda _: False)
    times = RunTimes(history.records(now))

    async def one() -> tuple[float, int]:
        began = time.thread_time()
        child = Forked(partial(compute, snapshot, now, times, history, engine), bound_bytes=1 << 60)
        took = time.thread_time() - began
        answering = asyncio.create_task(child.answer(TIMEOUT_S))
        await asyncio.to_thread(engine.decide, replace(snapshot, gangs=snapshot.gangs[1:]), now)
        found = await answering
        assert found is not None, child.text
        spent.append(child.cpu_s)
        return took, child.peak_bytes

    spent: list[float] = []
    runs = [asyncio.run(one()) for _ in range(FORKS)]
    held = statistics.median(took for took, _ in runs)
    yield _figure(f"{label}/fork-holds-the-loop", 1000 * held, "ms", 100.0, scaled=True)
    peak = max(peak for _, peak in runs)
    yield _figure(f"{label}/forecast-cpu", max(spent), "s", None, scaled=True)
    bar = bound_bytes(LIMIT_BYTES - _resident("VmRSS"))
    yield _figure(f"{label}/forecast-of-its-own", peak / MIB, "MiB", (bar or 0) / MIB)


# -- the recorder --------------------------------------------------------------------------------------------------


def _recorder(label: str, snapshot: Snapshot, now: float, engine: Engine) -> Iterator[dict[str, Any]]:
    plan = engine.decide(snapshot, now)
    with tempfile.TemporaryDirectory() as name:
        recorder = FlightRecorder(Path(name), Bounds(), writer="bench")
        began = time.thread_time()
        recorder.decided(recorder.note(snapshot), plan, now, 0.0)
        yield _figure(
            f"{label}/recorder-whole-in-the-loop", 1000 * (time.thread_time() - began), "ms", None, scaled=True
        )
        began = time.process_time()
        _until(lambda: recorder.shared.counts.recorded == 1)
        yield _figure(f"{label}/recorder-whole-cpu", time.process_time() - began, "s", None, scaled=True)
        changes = [replace(snapshot, gangs=snapshot.gangs[number:]) for number in range(1, 21)]
        began = time.thread_time()
        for changed in changes:
            recorder.decided(recorder.note(changed), plan, now, 0.0)
        each_ms = 1000 * (time.thread_time() - began) / len(changes)
        yield _figure(f"{label}/recorded-decision-in-the-loop", each_ms, "ms", None, scaled=True)
        recorder.close(TIMEOUT_S)
        yield _figure(f"{label}/segment", sum(path.stat().st_size for path in Path(name).iterdir()) / 1e6, "MB", None)
    yield from _recorder_memory(label, snapshot, now, engine)


def _recorder_memory(label: str, snapshot: Snapshot, now: float, engine: Engine) -> Iterator[dict[str, Any]]:
    """Allocations as Python counts them: what was free before is no part of it."""
    plan = engine.decide(snapshot, now)
    tracemalloc.start(1)
    with tempfile.TemporaryDirectory() as name:
        recorder = FlightRecorder(Path(name), Bounds(), writer="bench")
        recorder.decided(recorder.note(snapshot), plan, now, 0.0)
        _until(lambda: recorder.shared.counts.recorded == 1)
        kept, peak = tracemalloc.get_traced_memory()
        recorder.close(TIMEOUT_S)
    yield _figure(f"{label}/recorder-whole-peak", peak / MIB, "MiB", 256.0)
    yield _figure(f"{label}/recorder-keeps", kept / MIB, "MiB", None)
    yield from _behind(label, snapshot, pickle.dumps(plan), now)
    tracemalloc.stop()


def _behind(label: str, snapshot: Snapshot, plan: bytes, now: float) -> Iterator[dict[str, Any]]:
    """The disk takes nothing: the queue is full of decisions that share no value with one another."""
    go = threading.Event()
    original = RecordingWriter.decision

    def stuck(self: RecordingWriter, *args: Any, **more: Any) -> None:
        go.wait()
        original(self, *args, **more)

    RecordingWriter.decision = stuck  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as name:
            before = tracemalloc.get_traced_memory()[0]
            recorder = FlightRecorder(Path(name), Bounds(), writer="bench")
            decided = 0
            while not recorder.shared.counts.missed and decided < 2 * QUEUE_MAX:
                recorder.decided(recorder.note(snapshot), pickle.loads(plan), now, 0.0)
                decided += 1
            grown = tracemalloc.get_traced_memory()[0] - before
            go.set()
            recorder.close(TIMEOUT_S)
    finally:
        RecordingWriter.decision = original  # type: ignore[method-assign]
    yield _figure(f"{label}/recorder-behind", grown / MIB, "MiB", 256.0, decisions=decided)


# -- measures ------------------------------------------------------------------------------------------------------


def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + TIMEOUT_S
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError("the recorder did not write its first decision")
        time.sleep(0.01)


def _resident(name: str) -> int:
    """Bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _figure(
    figure: str, value: float, unit: str, bar: float | None, *, scaled: bool = False, **more: Any
) -> dict[str, Any]:
    return {"figure": figure, "value": round(value, 2), "unit": unit, "bar": bar, "scaled": scaled, **more}
