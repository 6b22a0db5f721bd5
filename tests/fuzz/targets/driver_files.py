"""Files that the driver finds: checkpoint records, CDI specs, faults, simulated state, and profiles of nodes.

They lie where root writes, but a disk that loses power leaves anything in them: whatever is in a file, the driver starts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import yaml

from fairlead.driver.backend.profiles import loading
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.layouts import config
from fairlead.driver.layouts.cutter import Intent, Intents
from fairlead.driver.prepare import records as rules
from fairlead.driver.prepare.cdi import BOOT_ID, RECORD
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.publish import faults
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations, mixed
from tests.fuzz.samples import full
from tests.fuzz.target import Target

_BOOT = "boot-1"
_UID = "uid-1"


def _record() -> dict[str, object]:
    found: dict[str, object] = full(ClaimRecord)
    return found | {"uid": _UID, "state": "prepared"}


def records(scratch: Path) -> Target:
    """A record as a checkpoint's file, with a right sum and with any, and as the annotation of a CDI file; then all of a start."""
    claims, cdi = scratch / "claims", scratch / "cdi"
    claims.mkdir()
    cdi.mkdir()
    checkpoint, specs = Checkpoint(claims, boot_id=_BOOT), CdiFiles(cdi)
    other = msgspec.convert(_record() | {"uid": "uid-2"}, ClaimRecord)

    def run(data: bytes) -> None:
        header = msgspec.json.encode({"schema": 1, "bootID": _BOOT, "sha256": hashlib.sha256(data).hexdigest()})
        for content in (header + b"\n" + data + b"\n", data):
            checkpoint.path(_UID).write_bytes(content)
            loaded = checkpoint.load()
            assert set(loaded.records) <= {_UID}
            assert loaded.records or loaded.unreadable or loaded.earlier_boot
            for record in loaded.records.values():
                rules.conflict(other.devices, [record])
                assert str(record)
                assert record.gpus_to_lock is not None
                checkpoint.write(record, durable=False)
                assert checkpoint.load().records == {_UID: record}, "what is written is read again"
            for left in claims.iterdir():
                left.unlink()
        annotated = msgspec.json.encode({"annotations": {BOOT_ID: _BOOT, RECORD: data.decode(errors="replace")}})
        for content in (annotated, data):
            specs.path(_UID).write_bytes(content)
            found = specs.record(_UID, boot_id=_BOOT)
            assert found is None or found.uid == _UID

    plain = {"uid": _UID, "namespace": "ml", "name": "c", "state": "preparing"}
    device = {"request": "gpu", "pool": "n1", "device": "gpu-0", "gpuUuid": "GPU-1", "minor": 0}
    seeds = [
        _record(),
        plain,
        plain | {"devices": [device]},
        plain | {"later": {"field": 1}},
        {"annotations": {BOOT_ID: _BOOT, RECORD: "{}"}},
    ]
    return Target(
        name="driver-records",
        run=run,
        seeds=tuple(msgspec.json.encode(each) for each in seeds),
        mutate=mixed(
            (4, json_mutations((_UID, "uid-2", "../x", "prepared", "live", "planned"))), (1, byte_mutations())
        ),
        traced=("/driver/prepare/",),
    )


_TABLE = {"name": "1g.10gb", "id": 19, "computeSlices": 1, "memorySlices": 1, "starts": [0, 1, 2], "memoryMiB": 9728}
_NODE = {
    "description": "two", "driverVersion": "570.1", "cudaDriverVersion": "12.8", "nvlinkIslands": [[0, 1]],
    "gpu": {"productName": "NVIDIA H100", "brand": "Nvidia", "architecture": "Hopper", "cudaComputeCapability": "9.0", "memoryMiB": 81559, "mig": [_TABLE], "nvlink": {"version": 4, "links": 18}},
    "gpus": [{"minor": 0, "uuid": "GPU-0", "pciBusId": "0000:1b:00.0"}, {"minor": 1, "migEnabled": True, "migDevices": ["1g.10gb@0"], "numaNode": 1}],
}  # fmt: skip


def states(scratch: Path) -> Target:
    """What keeps faults over a restart, the wish for faults, and the state of simulated hardware."""
    wanted, kept = scratch / "wanted.json", scratch / "state.json"
    path = scratch / "node.yaml"
    path.write_bytes(msgspec.json.encode(_NODE))
    profile = loading.load(str(path))
    backend = SimulatedBackend(profile, node="n1", state_file=kept)
    gpus = [gpu.uuid for gpu in backend.inventory().gpus]
    backend.state.save()
    profile_id = backend.inventory().gpus[0].mig_profiles[0].id
    instances = {gpu: [{"profile_id": profile_id, "start": 0, "gi_id": 1, "ci_id": 0, "uuid": "MIG-1"}] for gpu in gpus}

    def run(data: bytes) -> None:
        found = faults.decode(data, boot_id=_BOOT)
        for uuid in found:
            assert isinstance(faults.describe(found, uuid), str)
        faults.taints(found)
        wanted.write_bytes(data)
        fault_file.read(wanted)
        kept.write_bytes(data)
        again = SimulatedBackend(profile, node="n1", state_file=kept, fault_file=wanted)
        for gpu in again.inventory().gpus:
            again.compute_mode(gpu.uuid)
        again.statuses()
        again.telemetry()
        again.xids()
        again.state.save()

    saved = {"boot_id": _BOOT, "faults": {gpus[0]: [full(faults.Fault)]}}
    seeds = [
        saved,
        full(fault_file.WantedFaults),
        {"made": 1, "time_slices": {"0": "Short"}, "compute_modes": {"0": "Default"}, "instances": instances},
    ]
    return Target(
        name="driver-states",
        run=run,
        seeds=(*(msgspec.json.encode(each) for each in seeds), kept.read_bytes()),
        mutate=mixed((3, json_mutations((gpus[0], "Short", "Default", _BOOT))), (1, byte_mutations())),
        traced=("/driver/publish/faults.py", "/driver/backend/simulated/"),
    )


_YAML_WORDS = tuple(
    word.encode()
    for word in (
        "gpus:\n", "gpu:\n", "  - minor: 0\n", "  mig: h100-80gb\n", "migDevices: [1g.10gb@0]\n", "migEnabled: true\n", "nvlinkIslands: [[0, 1]]\n", "&a ", "*a", "<<: *a\n", "!!python/object:os.system ",
        "!!binary ", "!!timestamp ", "2001-99-99", "2026-01-01", "0x", "0b", "0o9", "1:99:99", "._", "-.inf", ".nan", "? ", "- ", ": ", "|\n  x\n", "---\n", "%YAML 9.9\n", "{", "[", "\t", "null", "~", "memoryMiB: 81920\n",
        "uuid: GPU-1\n", "=", "cudaComputeCapability: '9.0'\n",
    )
)  # fmt: skip


def profiles(scratch: Path) -> Target:
    """The YAML file of a node's hardware, and the GPUs that it describes."""
    path = scratch / "node.yaml"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        profile = loading.load(str(path))
        loading.gpus(profile, node="n1")
        SimulatedBackend(profile, node="n1").inventory()

    as_json = json_mutations(("h100-80gb", "1g.10gb@0", "GPU-0", "a100-40gb", "minor", "gpu", "gpus", "mig"))
    return Target(
        name="gpu-profiles",
        run=run,
        seeds=(
            msgspec.json.encode(_NODE),
            yaml.safe_dump(_NODE).encode(),
            b"gpu: {mig: h100-80gb}\ngpus:\n  - minor: 0\n",
        ),
        mutate=mixed((3, as_json), (2, byte_mutations(_YAML_WORDS))),
        allowed=(loading.ProfileError,),
        traced=("/driver/backend/",),
        bytes_max=4_000,
    )


_LAYOUTS = {
    "version": "v1",
    "mig-configs": {
        "a": [{"devices": "all", "mig-enabled": False}],
        "b": [
            {"device-filter": ["0x233010DE"], "devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 3}},
            {"device-filter": "0x20B210DE", "devices": [1], "mig-enabled": True, "mig-devices": {}},
        ],
    },
}


def layouts(scratch: Path) -> Target:
    """The file of MIG layouts, and what each means on a node; and the intents of a driver that was killed."""
    inventory = SimulatedBackend(loading.load("hgx-h100"), node="n1").inventory()
    path = scratch / "mig-config.json"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        Intents(path, boot_id=_BOOT).load()
        for entries in config.parse(data, path="layouts.yaml").values():
            config.resolve(entries, inventory)

    as_json = json_mutations(("all", "1g.10gb", "7g.80gb", "1c.2g.20gb", "0x233010DE", "mig-devices", "devices", "v1"))
    return Target(
        name="mig-layouts",
        run=run,
        seeds=(
            msgspec.json.encode(_LAYOUTS),
            yaml.safe_dump(_LAYOUTS).encode(),
            msgspec.json.encode({"boot_id": _BOOT, "gpus": {"GPU-0": full(Intent)}}),
        ),
        mutate=mixed((3, as_json), (2, byte_mutations(_YAML_WORDS))),
        allowed=(config.LayoutError,),
        traced=("/driver/layouts/",),
        bytes_max=4_000,
    )
