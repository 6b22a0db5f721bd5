"""When usage is written into claims, and what happens when it cannot be."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.driver.backend.types import Gpu, Inventory, Telemetry
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord
from fairlead.driver.usage.sampler import Rates, Sampler, Schedule, phase
from fairlead.driver.usage.writer import UsageWriter
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.device_usage import DeviceId, DeviceUsage, State, usage_of
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import RESOURCE_CLAIMS, raw
from tests.support.driver.cluster import DriverCluster

GIB = 2**30
DEVICE = DeviceId(names.DRIVER, "n1", "gpu-0")
CLAIMS = raw(RESOURCE_CLAIMS)


def usage(state: State = "Busy", peak: int | None = GIB, since_s: float = 0.0) -> dict[DeviceId, DeviceUsage]:
    return {DEVICE: DeviceUsage(state=state, since_s=since_s, sampled_at_s=since_s, memory_used_peak_bytes=peak)}


def scheduled(written: dict[DeviceId, DeviceUsage] | None = None, at_s: float = 0.0) -> Schedule:
    schedule = Schedule()
    schedule.seen(["u"], at_s)
    if written is not None:
        schedule.wrote("u", written, at_s)
    return schedule


def first_due(
    schedule: Schedule, now: dict[DeviceId, DeviceUsage], start_s: float, end_s: float = 8000
) -> float | None:
    return next((float(at) for at in range(int(start_s), int(end_s)) if schedule.due("u", now, at)), None)


# -- when ------------------------------------------------------------------------------------------------------------


def test_a_claim_is_first_written_some_minutes_after_it_was_prepared() -> None:
    at = first_due(scheduled(), usage(), 0)
    assert at is not None
    assert 300 <= at <= 361


@pytest.mark.parametrize(
    ("now", "matters"),
    [
        (usage(), False),
        (usage("Idle"), True),
        (usage("Unknown"), True),
        (usage(peak=GIB + GIB // 11), False),
        (usage(peak=GIB + GIB // 10 + 1), True),
        (usage(peak=GIB // 2), False),
        (usage(peak=None), False),
        (usage(since_s=77), False),
        ({**usage(), DEVICE._replace(device="gpu-1"): usage()[DEVICE]}, True),
    ],
)
def test_what_matters_is_written_within_minutes_and_the_rest_after_an_hour(now: Any, matters: bool) -> None:
    at = first_due(scheduled(usage()), now, 1000)
    assert at is not None
    assert 1000 <= at <= 1061 if matters else 3600 <= at <= 3961


def test_a_large_peak_matters_when_it_grew_by_a_gibibyte() -> None:
    large = scheduled(usage(peak=70 * GIB))
    assert first_due(large, usage(peak=71 * GIB), 1000, 1100) is not None
    assert first_due(scheduled(usage(peak=70 * GIB)), usage(peak=71 * GIB - 1), 1000, 1100) is None


@given(
    st.lists(
        st.tuples(st.floats(1, 900), st.sampled_from(["Busy", "Idle", "Unknown"]), st.integers(0, 80)), max_size=80
    )
)
def test_a_claim_is_never_written_twice_within_five_minutes(drawn: list[tuple[float, State, int]]) -> None:
    schedule, now_s, writes = scheduled(), 0.0, [0.0]
    for gap, state, peak in drawn:
        now_s += gap
        if schedule.due("u", found := usage(state, peak * GIB), now_s):
            schedule.wrote("u", found, now_s)
            writes.append(now_s)
    assert all(later - earlier >= 300 for earlier, later in itertools.pairwise(writes))


def test_a_gang_that_becomes_idle_at_once_is_written_over_a_minute() -> None:
    uids = [f"claim-{number}" for number in range(1000)]
    schedule = Schedule()
    schedule.seen(uids, 0)
    for uid in uids:
        schedule.wrote(uid, usage(), 0)
    due: dict[str, int] = {}
    for second in range(1000, 1070):
        for uid in uids:
            if uid not in due and schedule.due(uid, usage("Idle"), second):
                due[uid] = second
    assert len(due) == 1000
    per_second = [list(due.values()).count(second) for second in range(1000, 1062)]
    assert max(per_second) < 40, "1,000 writes in 60 s are 17 a second"
    assert all(0 <= phase(uid) < 1 for uid in uids)


# -- the rim ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Rig:
    """A writer on an apiserver, with a clock of its own and one claim with two GPUs."""

    cluster: DriverCluster
    records: RecordCache = dataclasses.field(default_factory=RecordCache)
    now_s: float = 1_800_000_000.0
    results: list[str] = dataclasses.field(default_factory=list)
    loads: dict[str, float | None] = dataclasses.field(default_factory=lambda: {"GPU-0": 90.0, "GPU-1": 0.0})

    def writer(self, client: Client | None = None) -> UsageWriter:
        self.sampler = Sampler()

        async def fetch(namespace: str, name: str) -> ResourceClaim:
            return await self.cluster.client.get(RESOURCE_CLAIMS, name, namespace)

        return UsageWriter(
            client or self.cluster.client,
            self.sampler,
            self.records,
            fetch=fetch,
            count=self.results.append,
            rates=Rates(spread_s=0),
            wall=lambda: self.now_s,
        )

    async def prepared(self, name: str = "train") -> dict[str, Any]:
        request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": 2}}
        made = await self.cluster.client.create(
            CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        )
        results = [
            {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": f"gpu-{minor}"} for minor in (0, 1)
        ]
        allocation = {"devices": {"results": results}}
        await self.cluster.client.patch(
            CLAIMS, name, {"status": {"allocation": allocation}}, namespace="default", subresource="status"
        )
        devices = tuple(
            DeviceRecord(request="gpu", pool="n1", device=f"gpu-{minor}", gpu_uuid=f"GPU-{minor}", minor=minor)
            for minor in (0, 1)
        )
        self.records.put(
            ClaimRecord(uid=made["metadata"]["uid"], namespace="default", name=name, state="prepared", devices=devices)
        )
        return made

    async def pass_(self, writer: UsageWriter, seconds: float) -> None:
        """Samples and steps each 5 s."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 5
            readings = [
                Telemetry(uuid=uuid, utilization_percent=of, memory_used_bytes=GIB) for uuid, of in self.loads.items()
            ]
            gpus = tuple(Gpu(minor=minor, uuid=f"GPU-{minor}", memory_bytes=80 * GIB) for minor in (0, 1))
            self.sampler.observe(self.now_s, readings, self.records.all(), Inventory(gpus=gpus))
            await writer.step()

    async def written(self, name: str = "train") -> dict[str, DeviceUsage]:
        claim = await self.cluster.client.get(RESOURCE_CLAIMS, name, "default")
        return {device.device: found for device, found in usage_of(claim).items()}


@pytest.fixture
def rig(cluster: DriverCluster) -> Rig:
    return Rig(cluster)


async def test_a_claims_usage_is_written_and_follows_what_matters(rig: Rig) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared()
    begin_s = rig.now_s
    await rig.pass_(writer, 310)
    found = await rig.written()
    assert {device: (each.state, each.utilization_percent) for device, each in found.items()} == {
        "gpu-0": ("Busy", 90),
        "gpu-1": ("Idle", 0),
    }
    assert found["gpu-1"].since_s == begin_s + 5
    assert (found["gpu-0"].memory_used_peak_bytes, found["gpu-0"].memory_bytes) == (GIB, 80 * GIB)
    rig.loads["GPU-0"] = 1.0
    await rig.pass_(writer, 1200)
    assert (await rig.written())["gpu-0"].state == "Idle"
    assert rig.results == ["ok", "ok"], "no more writes than changes"


async def test_a_restart_goes_on_with_what_is_written_and_writes_nothing(rig: Rig) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared()
    await rig.pass_(writer, 600)
    before = await rig.written()
    for _ in range(3):
        await rig.pass_(rig.writer(), 600)
    assert rig.results == ["ok"]
    await rig.pass_(rig.writer(), 2500)
    assert rig.results == ["ok", "ok"], "an hour is over"
    assert (await rig.written())["gpu-1"].since_s == before["gpu-1"].since_s, "idle goes on over restarts"


async def test_a_restart_takes_nothing_over_from_another_claim_of_that_name(rig: Rig) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared()
    await rig.pass_(writer, 400)
    assert await rig.written()
    [record] = rig.records.all()
    rig.records.replace_all({"earlier": msgspec.structs.replace(record, uid="earlier")})
    await rig.pass_(rig.writer(), 10)
    assert {each.since_s for each in rig.sampler.usages("earlier", rig.now_s).values()} == {rig.now_s - 5}


async def test_nothing_is_written_once_the_claim_is_unprepared(rig: Rig) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared()
    await rig.pass_(writer, 200)
    [record] = rig.records.all()
    rig.records.put(msgspec.structs.replace(record, state="unpreparing"))
    await rig.pass_(writer, 400)
    rig.records.remove(record.uid)
    await rig.pass_(writer, 400)
    assert rig.results == []


async def test_a_claim_that_is_gone_or_was_made_anew_is_left_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared("gone")
    await rig.prepared("anew")
    for name in ("gone", "anew"):
        await rig.cluster.client.delete(CLAIMS, name, "default")
    records = rig.records.all()
    await rig.prepared("anew")
    rig.records.replace_all({record.uid: record for record in records})
    with caplog.at_level(logging.INFO):
        await rig.pass_(writer, 1500)
    assert rig.results == ["gone", "gone"], "tried once an hour at most"
    assert await rig.written("anew") == {}
    assert len([line for line in caplog.messages if "is not written" in line]) == 1


async def test_a_device_that_is_not_allocated_any_more_is_refused_and_tried_an_hour_later(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    writer = rig.writer()
    await writer.step()
    await rig.prepared()
    await rig.cluster.client.patch(
        CLAIMS, "train", {"status": {"allocation": None}}, namespace="default", subresource="status"
    )
    await rig.pass_(writer, 1500)
    assert rig.results == ["invalid"]
    assert [line for line in caplog.messages if "must be an allocated device" in line]


async def test_without_the_right_it_says_once_what_is_missing_and_goes_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    path = rig.cluster.path / "nobody"
    path.write_text(rig.cluster.server.kubeconfig("nobody"))
    async with Client.connect(path) as nobody:
        writer = rig.writer(nobody)
        await writer.step()
        await rig.prepared("a")
        await rig.prepared("b")
        await rig.pass_(writer, 1500)
    assert rig.results == ["forbidden"], "the second claim would fare no better"
    [line] = [line for line in caplog.messages if "is not written" in line]
    assert "the driver's role needs patch on resourceclaims/status" in line


async def test_an_apiserver_that_does_not_answer_is_tried_again_after_minutes(rig: Rig) -> None:
    class Away(Client):
        async def patch(self, *args: Any, **more: Any) -> Any:
            raise errors.Unreachable("no route")

    async with Away.connect(rig.cluster.kubeconfig) as away:
        writer = rig.writer(away)
        await writer.step()
        for name in ("a", "b", "c"):
            await rig.prepared(name)
        await rig.pass_(writer, 900)
    assert set(rig.results) == {"error"}
    assert 3 <= len(rig.results) <= 10, "one at a time"
