"""What is found wrong with a GPU after its reset: a table of readings."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.nvml.session import Session, SessionBusy
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import GpuCondition, Inventory, RemappedRows, Telemetry
from fairlead.driver.publish.faults import Fault
from fairlead.driver.repair import hardware

BACKEND = SimulatedBackend(profiles.load("dgx-a100"), node="n1")
INVENTORY = BACKEND.inventory()
WHOLE, CUT = INVENTORY.gpus[0], INVENTORY.gpus[7]


def problems(gpu: Any = WHOLE, *, after: Any = None, **changes: Any) -> list[str]:
    """Of a GPU that is as before, but for the changes; `after` are fields of the GPU, the others of readings."""
    [member] = hardware.members_of((gpu,), INVENTORY)
    member = hardware.kept(BACKEND, member)
    condition = next(each for each in BACKEND.conditions() if each.uuid == gpu.uuid)
    fields = {field.name for field in dataclasses.fields(GpuCondition)}
    condition = dataclasses.replace(condition, **{name: value for name, value in changes.items() if name in fields})
    gpus = tuple(
        dataclasses.replace(each, **(after or {})) if each.uuid == gpu.uuid else each for each in INVENTORY.gpus
    )
    return hardware.problems(
        member,
        inventory=Inventory(gpus=() if changes.get("gone") else gpus),
        condition=condition,
        telemetry=Telemetry(uuid=gpu.uuid, sm_clock_hz=1e9, throttled=changes.get("throttled", {})),
        new_xids=changes.get("xids", ()),
        faults=changes.get("faults", ()),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, None),
        ({"xids": ["31"]}, None),  # a program's own
        ({"xids": ["48"]}, "since the reset it has reported Xid 48"),
        ({"gone": True}, "it does not answer"),
        ({"ecc_uncorrected": 2}, "2 new uncorrected ECC errors"),
        ({"remapped_rows": RemappedRows(corrected=0, uncorrected=1, pending=False, failed=False)}, None),
        ({"remapped_rows": RemappedRows(corrected=0, uncorrected=1, pending=True, failed=False)}, "still waits"),
        ({"remapped_rows": RemappedRows(corrected=0, uncorrected=1, pending=False, failed=True)}, "exchange the GPU"),
        ({"nvlink_active_links": 11}, "11 of 12 NVLinks are up"),
        ({"nvlink_active_links": None}, None),  # not reported
        ({"throttled": {"thermal_hw": True}}, "held down: thermal_hw"),
        ({"throttled": {"power_cap": True}}, None),
        ({"after": {"memory_bytes": 40 << 30}}, "it has 40960 MiB of memory"),
        ({"gpu": CUT}, None),
        ({"gpu": CUT, "after": {"mig_devices": CUT.mig_devices[1:]}}, "are not there again: 3g.40gb@0"),
        ({"gpu": CUT, "after": {"mig_enabled": False}}, "MIG mode is off, and was on"),
        ({"faults": [Fault(kind="recovery-action", severity="reset", since_s=0, message="needs a reset")]}, "needs a"),
        ({"faults": [Fault(kind="xid", severity="fatal", since_s=0, message="Xid 79: fatal")]}, "Xid 79: fatal"),
        ({"faults": [Fault(kind="xid", severity="reset", since_s=0, message="Xid 48")]}, None),  # what the reset cured
    ],
)
def test_each_reading_counts_and_what_is_not_reported_does_not(given: dict[str, Any], said: str | None) -> None:
    found = problems(**given)
    if said is None:
        assert found == []
    else:
        assert any(said in each for each in found), found


def test_a_reset_waits_for_calls_and_calls_wait_for_a_reset() -> None:
    session, order = Session(), []
    entered, leave = threading.Event(), threading.Event()

    def call() -> None:
        with session.call():
            order.append("call")
            entered.set()
            leave.wait(10)
            order.append("call ends")

    def late() -> None:
        with session.call():
            order.append("late call")

    first = threading.Thread(target=call)
    first.start()
    entered.wait(10)
    with pytest.raises(SessionBusy), session.alone(0.05):
        pass
    leave.set()
    with session.alone(10):
        second = threading.Thread(target=late)
        second.start()
        second.join(0.05)
        order.append("reset")
    second.join(10)
    first.join(10)
    assert order == ["call", "call ends", "reset", "late call"]
