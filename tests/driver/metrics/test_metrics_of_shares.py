"""What a scrape says of shares: what each is, to what it is held, what its own programs use; one series for each share and metric."""

from __future__ import annotations

from fairlead.driver.backend.simulated.fault_file import Load
from fairlead.driver.prepare.records import MpsRecord
from tests.support.driver.metrics_node import Node

GIB = 2**30


def shares(node: Node) -> dict[tuple[str, str], float]:
    """By claim and metric."""
    prefix = "fairlead_driver_share_"
    return {
        (labels["claim"], name.removeprefix(prefix)): value
        for name, labels, value in node.samples()
        if name.startswith(prefix)
    }


def test_each_share_has_its_size_its_limits_and_its_own_use() -> None:
    node = Node("hgx-h100")
    uuid = node.inventory.gpus[0].uuid
    limits = MpsRecord(devices=("gpu-0",), active_thread_percentage=25, memory_mib={"gpu-0": 20 * 1024})
    node.hold_share("held", uuid, 20 * GIB, limits)
    node.hold_share("free", uuid, 40 * GIB)
    node.hold("whole", node.inventory.gpus[1].uuid)
    node.backend.faults.loads["gpu-0"] = Load(utilization_percent=90, memory_used_bytes=30 * GIB)
    node.poll()
    assert shares(node) == {
        ("held", "memory_bytes"): 20 * GIB,
        ("held", "memory_used_bytes"): 10 * GIB,
        ("held", "memory_limit_bytes"): 20 * GIB,
        ("held", "multiprocessors_limit"): 33,
        ("free", "memory_bytes"): 40 * GIB,
        ("free", "memory_used_bytes"): 20 * GIB,
    }


def test_what_the_list_of_processes_does_not_tell_has_no_series() -> None:
    node = Node("hgx-h100")
    node.hold_share("held", node.inventory.gpus[0].uuid, 20 * GIB)
    node.backend.telemetry = lambda: ()  # type: ignore[method-assign]
    node.poll()
    assert shares(node) == {}
