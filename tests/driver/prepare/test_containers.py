"""What a container writes into the directories that it shares with the node: it hurts neither the driver nor other claims."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api import names
from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common.locks import ProcessLock
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.leftovers import Leftover
from fairlead.driver.prepare.mps_daemons import Daemons
from fairlead.driver.prepare.orphans import look
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.steps import Steps
from fairlead.driver.prepare.upkeep import BACKOFF_MAX_S, BACKOFF_S, Cleaner, MpsSupervisor, OrphanGc
from fairlead.kube import errors
from fairlead.kube.resources import EVENTS
from tests.support.driver.claims import claim, gpu_config, mps
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet
from tests.support.driver.nesting import nest
from tests.support.driver.node import Node


def clean(driver: Preparer) -> None:
    """What the cleaner does, as often as it takes."""
    for _ in range(500):
        left = driver.leftovers.all()
        if not left:
            return
        for each in left:
            driver.leftovers.attempt(each)
    raise AssertionError(driver.leftovers.all())


class TestClaims:
    @pytest.mark.parametrize("depth", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
    def test_a_nested_shm_holds_no_gpu_and_no_other_claim(self, node: Node, depth: int) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        driver.prepare(claim("u2", "gpu-1", config=[mps()]))
        nest(node.path / "mps/u1/shm", depth)
        assert driver.unprepare("u1")
        driver.prepare(claim("u3", "gpu-0", config=[mps()]))
        assert node.daemons.alive("u2")
        driver.unprepare("u2")
        driver.unprepare("u3")
        assert driver.records() == ()
        clean(driver)
        assert not node.leftovers()

    def test_what_answers_in_the_daemons_place_without_end_is_cut_off(
        self, tmp_path: Path, hgx: SimulatedBackend
    ) -> None:
        script = "import sys\nwhile True: sys.stdout.write('x' * 65536)\n"
        flood = dataclasses.replace(hgx.mps_program(), control=(sys.executable, "-I", "-S", "-c", script))
        daemons = Daemons(tmp_path / "mps", lambda: flood)
        with pytest.raises(BackendError, match=r"exit status -9: x+$") as raised:
            daemons.command("u1", ["get_server_list"])
        assert len(str(raised.value)) < 1000

    def test_a_config_that_is_nested_too_deeply_is_refused_by_its_field(self, node: Node) -> None:
        nested: dict[str, Any] = {}
        for _ in range(100_000):
            nested = {"a": nested}
        wanted = claim("u1", "gpu-0", config=[gpu_config(sharing="later")])
        assert wanted.status.allocation is not None
        [entry] = wanted.status.allocation.devices.config
        assert entry.opaque is not None
        entry.opaque.parameters["sharing"] = nested
        driver = node.start()
        with pytest.raises(ClaimError, match=r"config\[0\]\.opaque\.parameters: is nested too deeply"):
            driver.prepare(wanted)
        driver.prepare(claim("u3", "gpu-0"))
        driver.unprepare("u3")


ERRORS = [
    RecursionError("maximum recursion depth exceeded"),
    OSError(5, "Input/output error", "/x"),
    BackendError("wants a reset"),
]


class TestContainment:
    @pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
    def broken(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
        """UIDs of claims whose undo fails."""
        uids: set[str] = set()
        undo = Steps.undo

        def fail(steps: Steps, record: Any) -> None:
            if record.uid in uids:
                raise request.param
            undo(steps, record)

        monkeypatch.setattr(Steps, "undo", fail)
        return uids  # type: ignore[return-value]

    def test_a_start_undoes_the_others_and_tries_again(self, node: Node, broken: set[str]) -> None:
        driver = node.start()
        for number in range(3):
            with node.killed_at("CDI written"), contextlib.suppress(PrepareError):
                driver.prepare(claim(f"u{number}", f"gpu-{number}"))
        broken.add("u1")
        driver = node.start()
        assert [uid for uid, _ in node.recovery.not_undone] == ["u1"]
        assert node.recovery.undone == ("u0", "u2")
        [left] = driver.leftovers.all()
        assert (left.kind, left.name) == ("claim", "u1")
        driver.prepare(claim("u3", "gpu-0"))
        broken.clear()
        clean(driver)
        driver.unprepare("u3")
        assert not node.leftovers()

    async def test_one_orphan_that_cannot_be_unprepared_keeps_none_of_the_others(
        self, node: Node, broken: set[str]
    ) -> None:
        driver = node.start()
        for number in range(3):
            driver.prepare(claim(f"u{number}", f"gpu-{number}"))
        broken.add("u1")

        async def fetch(namespace: str, name: str) -> Any:
            if name == "claim-u0":
                raise RecursionError("an object nested too deeply")
            raise errors.NotFound("gone", status=404)

        async def unprepare(record: Any) -> None:
            driver.unprepare(record.uid)

        async def in_use(record: Any) -> str:
            return ""

        collector = OrphanGc(driver, is_orphan=partial(look, fetch), in_use=in_use, unprepare=unprepare)
        assert await collector.collect() == []
        assert await collector.collect() == ["u2"]
        broken.clear()
        assert await collector.collect() == ["u1"]

    async def test_a_retry_backs_off_and_is_reported_once(
        self, node: Node, broken: set[str], tmp_path: Path, threads: Threads
    ) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        broken.add("u1")
        with contextlib.suppress(Exception):
            driver.unprepare("u1")
        now, reports, counts = [0.0], list[tuple[Leftover, str, float]](), list[Mapping[str, int]]()
        cleaner = Cleaner(
            driver.leftovers,
            process_lock=ProcessLock(tmp_path / "turn", reload=_nothing),
            threads=threads,
            report=lambda left, why, again: reports.append((left, why, again)),
            count=counts.append,
            clock=lambda: now[0],
        )
        for _ in range(100):
            await cleaner.clean()
            now[0] += BACKOFF_S
        [(left, why, again_s)] = reports
        assert (left.subject, again_s) == ("ResourceClaim ml/claim-u1 (u1)", BACKOFF_S)
        assert why
        assert cleaner._tried[left].failures <= 10  # 500 s: 5, 10, 20 ... 300
        assert counts[-1] == {"claim": 1}
        broken.clear()
        now[0] += BACKOFF_MAX_S
        await cleaner.clean()
        assert counts[-1] == {}
        assert driver.records() == ()
        assert not node.leftovers()

    async def test_one_claims_daemon_does_not_keep_the_supervisor_from_the_others(
        self, node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: Threads
    ) -> None:
        driver = node.start()
        for number in range(2):
            driver.prepare(claim(f"u{number}", f"gpu-{number}", config=[mps()]))
        alive = Daemons.alive

        def odd(daemons: Daemons, uid: str) -> bool:
            if uid == "u0":
                raise PermissionError(13, "Permission denied", "lock")
            return alive(daemons, uid)

        monkeypatch.setattr(Daemons, "alive", odd)
        node.daemons.stop("u1")
        reported: list[Mapping[str, str]] = []
        restarts: list[int] = []
        supervisor = MpsSupervisor(
            driver,
            process_lock=ProcessLock(tmp_path / "turn", reload=_nothing),
            threads=threads,
            restarted=lambda: restarts.append(1),
            report_unhealthy=reported.append,
        )
        await supervisor.check()
        assert restarts == [1]
        assert set(reported[-1]) == {"gpu-0"}
        monkeypatch.undo()
        for number in range(2):
            driver.unprepare(f"u{number}")

    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(os.mkfifo, id="fifo"),
            pytest.param(lambda path: path.write_bytes(b"[" * 100_000 + b"\n" + b"[" * 100_000), id="nested"),
            pytest.param(Path.mkdir, id="directory"),
            pytest.param(lambda path: path.symlink_to("/dev/zero"), id="link"),
            pytest.param(lambda path: path.write_bytes(b"\xff\xfe\n\x00"), id="binary"),
        ],
    )
    def test_a_record_of_any_kind_costs_its_claim_alone(self, node: Node, make: Callable[[Path], object]) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-1"))
        path = node.path / "claims/u0.json"
        make(path)
        (node.path / "cdi" / "k8s.gpu.fairlead.dev-claim_u9.json").write_bytes(b"[" * 100_000)
        driver = node.start()
        assert [broken.uid for broken in node.recovery.unreadable] == ["u0"]
        assert [record.uid for record in driver.records()] == ["u1"]

    def test_a_start_that_takes_too_long_leaves_the_rest_for_later(self, node: Node) -> None:
        driver = node.start()
        for number in range(3):
            with node.killed_at("CDI written"):
                driver.prepare(claim(f"u{number}", f"gpu-{number}"))
        driver = node.fresh()
        ticks = iter([0.0, 0.0, 100.0, 100.0, 100.0])
        result = driver.leftovers.recover(clock=lambda: next(ticks))
        assert result.undone == ("u0",)
        assert [uid for uid, _ in result.not_undone] == ["u1", "u2"]
        clean(driver)
        assert not node.leftovers()


class TestWholeDriver:
    @pytest.mark.slow
    async def test_a_nested_shm_and_a_file_that_stays_are_reported_and_hold_up_no_claim(
        self, cluster: DriverCluster, monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
    ) -> None:
        wanted, bind = await cluster.allocate("gpu-0", config=[mps()]), f"127.0.0.1:{free_port()}"
        uid = wanted.metadata.uid
        data = cluster.path / "plugins/gpu.fairlead.dev"
        async with cluster.driver(), Kubelet.connect(cluster.registration) as kubelet:
            assert (await kubelet.prepare(wanted))[uid].error == ""
            nest(data / "mps" / uid / "shm", 300)
        (data / "mps" / uid / "shm" / "stays").write_text("")
        unlink = os.unlink

        def refuse(name: Any, **more: Any) -> None:
            if name == "stays":
                raise PermissionError(1, "Operation not permitted", "stays")
            unlink(name, **more)

        monkeypatch.setattr(os, "unlink", refuse)
        async with (
            cluster.driver(metrics_bind=bind),
            Kubelet.connect(cluster.registration) as kubelet,
            aiohttp.ClientSession() as http,
        ):

            async def left(number: int) -> bool:
                async with http.get(f"http://{bind}/metrics") as response:
                    return f'fairlead_driver_leftovers{{kind="files"}} {number}.0' in await response.text()

            assert (await kubelet.unprepare(wanted))[uid].error == ""
            assert (await kubelet.prepare(wanted))[uid].error == ""  # the GPU is free, and so is the claim's name
            assert (await kubelet.unprepare(wanted))[uid].error == ""

            async def recorded() -> bool:
                return bool((await cluster.client.list(EVENTS, "default")).items)

            await cluster.until(lambda: left(1))
            await cluster.until(recorded)
            monkeypatch.undo()
        [event] = (await cluster.client.list(EVENTS, "default")).items
        assert (event["type"], event["reason"]) == ("Warning", "ClaimFilesNotRemoved")
        assert (
            f"claim {uid}, which has ended: what its containers left cannot be removed: stays: Operation"
            in event["message"]
        )
        assert "tried again in 5 s" in event["message"]


class TestNames:
    def test_an_annotation_that_would_leave_the_directory_is_none(self, node: Node) -> None:
        wanted = claim("u1", "gpu-0")
        wanted.metadata.annotations[names.POD_CLAIM_NAME] = "../../../../etc"
        record = node.start().prepare(wanted)
        assert record.pod_claim is None
        assert "/etc/" not in node.cdi_files.path("u1").read_text().replace("/etc/OpenCL", "")


async def _nothing() -> None:
    pass
