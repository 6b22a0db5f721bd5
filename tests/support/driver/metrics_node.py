"""A simulated node whose metrics are scraped in tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import GpuCondition, Telemetry
from fairlead.driver.metrics.collector import GpuCollector, SlicesCollector
from fairlead.driver.prepare.record_cache import RecordCache, SharePrograms
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, MigRecord, MpsRecord
from fairlead.driver.publish.known_faults import XidCounts
from fairlead.driver.usage.sampler import Sampler

Series = dict[str, float]


class Node:
    """A simulated node, its claims, and a registry with both collectors."""

    def __init__(self, profile: str, *, dcgm: bool = False) -> None:
        self.now_s = 0.0
        self.records: list[ClaimRecord] = []
        self.pods: dict[str, Sequence[str]] = {}
        self.xids = XidCounts()
        self.synced_at_s: float | None = None
        self.cache, self.sampler = RecordCache(), Sampler()
        self.backend = SimulatedBackend(
            profiles.load(profile),
            node="n1",
            held=lambda: {device.uuid for record in self.records for device in record.devices},
            shares=SharePrograms(self.cache, lambda uid: ()),
            clock=lambda: self.now_s,
        )
        self.inventory = self.backend.inventory()
        self.telemetry: tuple[Telemetry, ...] = ()
        self.conditions: tuple[GpuCondition, ...] = ()
        self.registry = CollectorRegistry()
        self.registry.register(
            GpuCollector(
                inventory=lambda: self.inventory,
                telemetry=lambda: self.telemetry,
                conditions=lambda: self.conditions,
                xids=self.xids,
                records=lambda: self.records,
                pods=lambda uid: self.pods.get(uid, ()),
                usages=lambda uid: self.sampler.usages(uid, self.now_s),
                node="n1",
                with_dcgm=dcgm,
            )
        )
        self.registry.register(SlicesCollector(lambda: self.synced_at_s))

    def cut(self) -> None:
        """Cut each GPU into seven MIG devices."""
        for gpu in self.inventory.gpus:
            profile = next(each for each in gpu.mig_profiles if each.name == "1g.10gb")
            for start in profile.starts[:7]:
                self.backend.create_mig(gpu.uuid, profile.id, start)

    def hold(self, uid: str, *uuids: str) -> None:
        """A claim of these devices, with one pod."""
        self.pods[uid] = (f"pod-{uid}",)
        self.records.append(
            ClaimRecord(
                uid=uid, namespace="ml", name=uid, state="prepared", devices=tuple(self._device(u) for u in uuids)
            )
        )

    def hold_share(self, uid: str, uuid: str, memory_bytes: int, mps: MpsRecord | None = None) -> None:
        """A claim of a share of a device, with one pod."""
        self.pods[uid] = (f"pod-{uid}",)
        device = msgspec.structs.replace(self._device(uuid), share_id=f"s-{uid}", consumed={"memory": memory_bytes})
        record = ClaimRecord(uid=uid, namespace="ml", name=uid, state="prepared", devices=(device,), mps=mps)
        self.records.append(record)
        self.cache.put(record)

    def _device(self, uuid: str) -> DeviceRecord:
        for gpu in self.inventory.gpus:
            if gpu.uuid == uuid:
                return DeviceRecord(request="gpu", pool="n1", device=f"gpu-{gpu.minor}", gpu_uuid=uuid, minor=gpu.minor)
            for mig in gpu.mig_devices:
                if mig.uuid == uuid:
                    made = MigRecord(
                        profile=mig.profile.name,
                        profile_id=mig.profile.id,
                        start=mig.start,
                        size=mig.profile.memory_slices,
                        uuid=uuid,
                    )
                    return DeviceRecord(
                        request="gpu",
                        pool="n1",
                        device=f"mig-{mig.start}",
                        gpu_uuid=gpu.uuid,
                        minor=gpu.minor,
                        mig=made,
                    )
        raise AssertionError(uuid)

    def poll(self, passed_s: float = 5.0) -> None:
        self.now_s += passed_s
        self.inventory = self.backend.inventory()
        self.telemetry, self.conditions = self.backend.telemetry(), self.backend.conditions()
        self.xids.add(self.backend.xids())
        self.sampler.observe(self.now_s, self.telemetry, self.records, self.inventory)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                yield sample.name, dict(sample.labels), sample.value

    def of(self, uuid: str) -> dict[tuple[str, str], float]:
        """Value by name without prefix, and by the value of the third label, where there is one."""
        return {
            (name.removeprefix("fairlead_driver_gpu_"), next(iter(rest.values()), "")): value
            for name, labels, value in self.samples()
            if name.startswith("fairlead_driver_gpu_") and labels["uuid"] == uuid
            for rest in [{key: each for key, each in labels.items() if key not in {"device", "uuid"}}]
        }

    def dcgm(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        return [
            (found, value) for each, found, value in self.samples() if each == name and labels.items() <= found.items()
        ]


IDLE_H100 = {
    ("memory_bytes", ""): 81559 * 2**20,
    ("utilization_percent", ""): 0,
    ("memory_used_bytes", ""): 0,
    ("memory_reserved_bytes", ""): 0,
    ("power_watts", ""): 60,
    ("power_limit_watts", ""): 700,
    ("temperature_celsius", ""): 30,
    ("sm_clock_hertz", ""): 345e6,
    ("memory_clock_hertz", ""): 2619e6,
    ("sm_active_ratio", ""): 0,
    ("tensor_active_ratio", ""): 0,
    ("dram_active_ratio", ""): 0,
    **{
        ("throttled", reason): 0
        for reason in ("thermal_hw", "thermal_sw", "power_cap", "power_brake", "hw_slowdown", "sync_boost")
    },
    ("ecc_errors_total", "corrected"): 0,
    ("ecc_errors_total", "uncorrected"): 0,
    **{("remapped_rows", kind): 0 for kind in ("corrected", "uncorrected", "pending", "failed")},
    ("nvlink_active_links", ""): 18,
    ("nvlink_sent_bytes_total", ""): 0,
    ("nvlink_received_bytes_total", ""): 0,
}
