"""DCGM's names for what a scrape says of devices; how many series there are, and how long a scrape takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from fairlead.api.withheld import GROUPS
from fairlead.driver.backend.simulated.fault_file import Load, MemoryErrors
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.metrics.collector import SlicesCollector
from fairlead.driver.metrics.readings import LABELS
from tests.support.driver.metrics_node import Node
from tests.support.stated_series import counted, stated


@pytest.fixture
def h100() -> Node:
    return Node("hgx-h100", dcgm=True)


class TestDcgm:
    def test_labels_are_those_of_the_exporter(self, h100: Node) -> None:
        gpu = h100.inventory.gpus[5]
        h100.hold("u1", gpu.uuid)
        h100.poll()
        [(labels, value)] = h100.dcgm("DCGM_FI_DEV_POWER_USAGE", gpu="5")
        assert set(labels) == set(LABELS)
        assert labels == {
            "gpu": "5",
            "UUID": gpu.uuid,
            "pci_bus_id": "0000000A:00:00.0",
            "device": "nvidia5",
            "modelName": "NVIDIA H100 80GB HBM3",
            "GPU_I_PROFILE": "",
            "GPU_I_ID": "",
            "hostname": "n1",
            "namespace": "ml",
            "pod": "pod-u1",
            "container": "",
        }
        assert value == 60

    def test_values_are_in_dcgms_units(self, h100: Node) -> None:
        expected = {
            "DCGM_FI_DEV_GPU_UTIL": 90,
            "DCGM_FI_DEV_FB_USED": 40 * 1024,
            "DCGM_FI_DEV_FB_FREE": 81559 - 40 * 1024,
            "DCGM_FI_DEV_SM_CLOCK": 1980,
            "DCGM_FI_DEV_MEM_CLOCK": 2619,
            "DCGM_FI_DEV_XID_ERRORS": 94,
            "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 5,
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 2,
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
            "DCGM_FI_PROF_SM_ACTIVE": 0.85 * 0.9,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.45,
            "DCGM_FI_PROF_DRAM_ACTIVE": 0.36,
        }
        h100.backend.faults.loads["gpu-0"] = Load(utilization_percent=90, memory_used_bytes=40 * 2**30)
        h100.backend.faults.memory_errors[0] = MemoryErrors(corrected=5, uncorrected=2)
        h100.backend.faults.xids += [(0, 31), (0, 94)]
        h100.poll()
        found = {name: [value for _, value in h100.dcgm(name, gpu="0")] for name in expected}
        assert found == {name: [pytest.approx(value)] for name, value in expected.items()}

    def test_a_mig_device_is_a_part_of_its_gpu_with_the_pod_that_has_it(self, h100: Node) -> None:
        h100.cut()
        h100.inventory = h100.backend.inventory()
        gpu = h100.inventory.gpus[0]
        mig = gpu.mig_devices[3]
        h100.hold("u1", mig.uuid)
        h100.poll()
        [(labels, _)] = h100.dcgm("DCGM_FI_PROF_SM_ACTIVE", gpu="0", GPU_I_ID=str(mig.gi_id))
        assert (labels["UUID"], labels["GPU_I_PROFILE"], labels["pod"]) == (gpu.uuid, "1g.10gb", "pod-u1")
        [(labels, _)] = h100.dcgm("DCGM_FI_PROF_SM_ACTIVE", gpu="0", GPU_I_ID="")
        assert (labels["GPU_I_PROFILE"], labels["pod"]) == ("", "")

    def test_a_gpu_of_several_claims_names_none(self, h100: Node) -> None:
        for uid in ("u1", "u2"):
            h100.hold(uid, h100.inventory.gpus[0].uuid)
        h100.poll()
        [(labels, _)] = h100.dcgm("DCGM_FI_DEV_GPU_TEMP", gpu="0")
        assert (labels["namespace"], labels["pod"]) == ("", "")


def whole(node: Node) -> None:
    for gpu in node.inventory.gpus:
        node.hold(f"u{gpu.minor}", gpu.uuid)


def in_seven(node: Node) -> None:
    node.cut()
    node.inventory = node.backend.inventory()
    for gpu in node.inventory.gpus:
        for mig in gpu.mig_devices:
            node.hold(mig.uuid, mig.uuid)


class TestCardinality:
    """Series of one node of eight H100s, and of the 500 such nodes that have 4,000 GPUs. docs/gpu-metrics.md states these."""

    # What, a node, 4,000 GPUs.
    @pytest.mark.parametrize(
        ("devices", "dcgm", "node", "cluster"),
        [
            (whole, False, 225, 112_500),
            (whole, True, 353, 176_500),
            (in_seven, False, 601, 300_500),
            (in_seven, True, 1_057, 528_500),
        ],
    )
    def test_the_number_of_series_is_what_the_docs_say(
        self, devices: Callable[[Node], None], dcgm: bool, node: int, cluster: int
    ) -> None:
        made = Node("hgx-h100", dcgm=dcgm)
        made.synced_at_s = 1.0
        devices(made)
        made.poll()
        series = list(made.samples())
        assert len(series) == len({(name, *sorted(labels.items())) for name, labels, _ in series})
        assert (len(series), len(series) * 500) == (node, cluster)

    def test_the_drivers_own_are_as_many_as_is_stated(self) -> None:
        metrics = Metrics()
        metrics.published({"gpu": 8}, tainted=0)
        metrics.kept(dict.fromkeys(GROUPS, True))
        metrics.track_claims_held(dict)
        for verb, result in itertools.product(("create", "update", "delete"), ("ok", "error")):
            metrics.wrote(verb, result)
        metrics.registry.register(SlicesCollector(lambda: 1.0))
        found = counted(metrics.registry)
        assert found == stated("Driver")
        assert sum(found.values()) == 81, "docs/gpu-metrics.md says so"
