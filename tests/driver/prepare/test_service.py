"""The plugin between kubelet and the preparer: deadlines, answers for each claim, logs; the orphan GC; the process lock."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Process
from fairlead.driver.common.locks import ProcessLock, ProcessLockError
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet.plugin import ClaimRef, Plugin
from fairlead.driver.prepare import steps
from fairlead.driver.prepare.orphans import look
from fairlead.driver.prepare.preparer import Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.upkeep import OrphanGc
from fairlead.kube import errors, logs
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.claims import claim
from tests.support.driver.node import Node


class Claims:
    """An apiserver that knows only claims."""

    def __init__(self, *known: ResourceClaim) -> None:
        self.known = {one.metadata.name: one for one in known}
        self.error: errors.ApiError | None = None

    async def fetch(self, namespace: str, name: str) -> ResourceClaim:
        if self.error is not None:
            raise self.error
        if name not in self.known:
            raise errors.NotFound(f'resourceclaims "{name}" not found', status=404)
        return self.known[name]


def ref(one: ResourceClaim) -> ClaimRef:
    return ClaimRef(namespace=one.metadata.namespace, name=one.metadata.name, uid=one.metadata.uid)


def plugin(
    node: Node, claims: Claims, threads: Threads, *, deadline_s: float = 30.0, wait_s: float = 20.0
) -> tuple[Plugin, Preparer]:
    preparer = node.start()

    async def reload() -> None:
        preparer.reload()

    process_lock = ProcessLock(node.path / "serialize.lock", reload=reload)
    made = Plugin(
        preparer,
        fetch=claims.fetch,
        process_lock=process_lock,
        threads=threads,
        metrics=Metrics(),
        is_orphan=partial(look, claims.fetch),
        deadline_s=deadline_s,
        wait_s=wait_s,
    )
    return made, preparer


class TestDeadline:
    async def test_a_gpu_that_hangs_costs_its_claim_an_error_and_no_other_claim_anything(
        self, node: Node, hgx: SimulatedBackend, threads: Threads
    ) -> None:
        release = threading.Event()

        def hang(operation: str, minor: int) -> None:
            if minor == 0:
                release.wait(30)

        hgx.faults.before = hang
        hanging, healthy = claim("u1", "gpu-0-mig-1g10gb-19-0"), claim("u2", "gpu-1-mig-1g10gb-19-0")
        driver, preparer = plugin(node, Claims(hanging, healthy), threads, deadline_s=0.2)
        answer = await driver.prepare([ref(hanging), ref(healthy)])
        assert "not done within 0.2 s; it goes on" in str(answer["u1"])
        assert isinstance(answer["u2"], ClaimRecord)
        threads_before = threads._started
        for _ in range(5):  # kubelet retries again and again: no further thread
            assert isinstance((await driver.prepare([ref(hanging)]))["u1"], str)
        assert threads._started == threads_before
        release.set()
        driver.deadline_s = 30.0
        assert isinstance((await driver.prepare([ref(hanging)]))["u1"], ClaimRecord)
        preparer.unprepare("u1")
        preparer.unprepare("u2")
        assert not node.leftovers()

    async def test_an_unforeseen_error_is_an_answer_too(
        self, node: Node, threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = claim("u1", "gpu-0")
        driver, preparer = plugin(node, Claims(one), threads)
        monkeypatch.setattr(preparer, "prepare", lambda _: 1 / 0)
        answer = await driver.prepare([ref(one)])
        assert answer["u1"] == "ResourceClaim ml/claim-u1: internal error: ZeroDivisionError: division by zero"
        assert "Traceback" in caplog.text

    async def test_an_apiserver_that_fails_is_named(self, node: Node, threads: Threads) -> None:
        one = claim("u1", "gpu-0")
        claims = Claims(one)
        claims.error = errors.ServerError("etcd is gone", status=500)
        driver, _ = plugin(node, claims, threads)
        answer = await driver.prepare([ref(one)])
        assert str(answer["u1"]).startswith("ResourceClaim ml/claim-u1: reading it from the apiserver: ")


class TestLogs:
    async def test_every_line_of_a_call_carries_its_operation(self, node: Node, threads: Threads) -> None:
        stream = io.StringIO()
        before = logging.getLogger().handlers[:], logging.getLogger().level
        logs.configure("json", "INFO", stream=stream)
        try:
            one = claim("u1", "gpu-0")
            driver, _ = plugin(node, Claims(one), threads)
            await driver.prepare([ref(one)])
            node.cdi_files.remove("u1")
            await driver.prepare([ref(one)])
        finally:
            logging.getLogger().handlers[:], level = before
            logging.getLogger().setLevel(level)
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        lines = [line for line in lines if line["logger"].startswith("fairlead.driver")]
        operations = [line["op"] for line in lines]
        assert len(set(operations)) == 2
        assert all(len(op) == 8 for op in operations)
        first = [line for line in lines if line["op"] == operations[0]]
        assert [line["message"] for line in first] == [
            "NodePrepareResources: begin",
            "NodePrepareResources: ResourceClaim ml/claim-u1",
            "NodePrepareResources: end",
        ]
        assert first[1]["devices"] == ["gpu-0"]
        assert first[2]["duration_ms"] >= 0
        # A warning from the thread that does the work is part of the call, too.
        assert any("its CDI file is gone" in line["message"] for line in lines if line["op"] == operations[-1])


class TestDevicesOnTheirWayOut:
    async def test_a_prepare_waits_until_kubelet_unprepares_the_claim_that_is_gone(
        self, node: Node, threads: Threads
    ) -> None:
        old, new = claim("u1", "gpu-0"), claim("u2", "gpu-0", name="new")
        claims = Claims(old, new)
        made, _ = plugin(node, claims, threads)
        await made.prepare([ref(old)])
        del claims.known["claim-u1"]
        waiting = asyncio.ensure_future(made.prepare([ref(new)]))
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        assert await made.unprepare([ref(old)]) == {"u1": None}
        async with asyncio.timeout(2.0):
            assert isinstance((await waiting)["u2"], ClaimRecord)

    async def test_a_claim_that_lives_is_not_waited_for(self, node: Node, threads: Threads) -> None:
        old, new = claim("u1", "gpu-0"), claim("u2", "gpu-0", name="new")
        made, _ = plugin(node, Claims(old, new), threads)
        await made.prepare([ref(old)])
        async with asyncio.timeout(2.0):
            assert "gpu-0 is held by ResourceClaim" in str((await made.prepare([ref(new)]))["u2"])

    async def test_it_is_refused_in_time_where_the_old_container_takes_longer(
        self, node: Node, threads: Threads
    ) -> None:
        old, new = claim("u1", "gpu-0"), claim("u2", "gpu-0", name="new")
        claims = Claims(old, new)
        made, _ = plugin(node, claims, threads, wait_s=0.3)
        await made.prepare([ref(old)])
        del claims.known["claim-u1"]
        async with asyncio.timeout(2.0):
            assert "gpu-0 is held by ResourceClaim" in str((await made.prepare([ref(new)]))["u2"])

    async def test_a_pod_that_ends_while_its_prepare_waits_leaves_nothing(self, node: Node, threads: Threads) -> None:
        old, new = claim("u1", "gpu-0"), claim("u2", "gpu-0", name="new")
        claims = Claims(old, new)
        made, preparer = plugin(node, claims, threads)
        await made.prepare([ref(old)])
        del claims.known["claim-u1"]
        waiting = asyncio.ensure_future(made.prepare([ref(new)]))
        await asyncio.wait({waiting}, timeout=0.5)
        assert await made.unprepare([ref(new)]) == {"u2": None}
        assert "is held by" in str((await waiting)["u2"])
        await made.unprepare([ref(old)])
        assert preparer.records() == ()
        assert not node.leftovers()


class TestOrphanGc:
    def gc(self, preparer: Preparer, claims: Claims, backend: SimulatedBackend | None = None) -> OrphanGc:
        async def unprepare(record: ClaimRecord) -> None:
            preparer.unprepare(record.uid)

        async def in_use(record: ClaimRecord) -> str:
            return ", ".join(steps.processes(backend, record)) if backend is not None else ""

        return OrphanGc(preparer, is_orphan=partial(look, claims.fetch), in_use=in_use, unprepare=unprepare)

    async def test_a_claim_that_is_missing_at_two_collections_is_unprepared(self, node: Node) -> None:
        one = claim("u1", "gpu-0")
        claims, preparer = Claims(one), node.start()
        gc = self.gc(preparer, claims)
        preparer.prepare(one)
        assert await gc.collect() == []
        claims.known.clear()
        assert await gc.collect() == []
        assert await gc.collect() == ["u1"]
        assert not node.leftovers()

    async def test_a_claim_recreated_under_its_name_counts_as_missing(self, node: Node) -> None:
        preparer = node.start()
        preparer.prepare(claim("u1", "gpu-0", name="train"))
        gc = self.gc(preparer, Claims(claim("u2", "gpu-1", name="train")))
        await gc.collect()
        assert await gc.collect() == ["u1"]

    async def test_a_gpu_with_a_process_on_it_is_not_unprepared(self, node: Node, hgx: SimulatedBackend) -> None:
        preparer = node.start()
        preparer.prepare(claim("u1", "gpu-0"))
        gc = self.gc(preparer, Claims(), hgx)
        hgx.faults.processes[0] = (Process(pid=7, name="train"),)
        for _ in range(5):
            assert await gc.collect() == []
        hgx.faults.processes.clear()
        assert await gc.collect() == ["u1"]

    async def test_an_apiserver_that_does_not_answer_says_nothing(self, node: Node) -> None:
        claims, preparer = Claims(), node.start()
        claims.error = errors.Unreachable("connection refused")
        preparer.prepare(claim("u1", "gpu-0"))
        gc = self.gc(preparer, claims)
        for _ in range(5):
            assert await gc.collect() == []

    async def test_a_claim_that_exists_again_between_collections_is_kept(self, node: Node) -> None:
        one = claim("u1", "gpu-0")
        claims, preparer = Claims(), node.start()
        preparer.prepare(one)
        gc = self.gc(preparer, claims)
        for _ in range(4):
            await gc.collect()
            claims.known = {} if claims.known else {one.metadata.name: one}
        assert preparer.record("u1") is not None


class TestProcessLock:
    async def test_calls_of_one_process_share_the_lock_and_another_waits(self, tmp_path: Path) -> None:
        changes: list[str] = []

        def process_lock(name: str) -> ProcessLock:
            async def changed() -> None:
                changes.append(name)

            async def at_once(seconds: float) -> None:
                pass

            return ProcessLock(tmp_path / "lock", reload=changed, sleep=at_once)

        mine, other = process_lock("mine"), process_lock("other")
        async with mine.hold(timeout_s=1), mine.hold(timeout_s=1):
            with pytest.raises(ProcessLockError, match="another process of this driver is at work"):
                async with other.hold(timeout_s=0.1):
                    pass
        async with other.hold(timeout_s=1):
            pass
        async with other.hold(timeout_s=1):
            pass
        async with mine.hold(timeout_s=1):
            pass
        assert changes == ["mine", "other", "mine"]

    async def test_a_disk_that_fails_is_told_with_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = ProcessLock(tmp_path / "lock", reload=_reload_nothing)

        def failing(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "pwrite", failing)
        with pytest.raises(ProcessLockError, match=r"/lock: Input/output error; check the node's disk"):
            async with lock.hold(timeout_s=1):
                pass
        monkeypatch.undo()
        async with lock.hold(timeout_s=1):
            pass


async def _reload_nothing() -> None:
    pass
