"""The pages about the driver name every attribute, metric and profile that there is, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.metrics.collector import GpuCollector, SlicesCollector
from fairlead.driver.publish import slices
from fairlead.driver.publish.known_faults import XidCounts

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in ("driver.md", "gpu-metrics.md"))


def published() -> list[slices.PoolSlices]:
    found = []
    for name in profiles.known():
        inventory = SimulatedBackend(profiles.load(name), node="n1").inventory()
        found += [
            slices.build(inventory, slices.Facts(offer=slices.Offer(mig_strategy="mixed"))),
            slices.build(inventory, slices.Facts(partitionable=frozenset(gpu.uuid for gpu in inventory.gpus))),
        ]
    return found


def test_every_attribute_and_capacity_is_documented_and_every_documented_attribute_exists() -> None:
    devices = [device for built in published() for device in built.devices]
    attributes = {name.rpartition("/")[2] for device in devices for name in device.attributes}
    capacities = {re.sub(r"\d+$", "<i>", name) for device in devices for name in device.capacity}
    for name in attributes | capacities:
        assert re.search(rf"[`/]{re.escape(name)}`", TEXT), name
    table = TEXT.split("| attribute |")[1].split("\n\n")[0]
    documented = {
        name.rpartition("/")[2]
        for row in table.splitlines()[2:]
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert documented == attributes


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    metrics = Metrics()
    backend = SimulatedBackend(profiles.load("l40s"), node="n1")
    metrics.registry.register(
        GpuCollector(
            inventory=backend.inventory,
            telemetry=backend.telemetry,
            conditions=backend.conditions,
            xids=XidCounts(),
            records=list,
            pods=lambda _uid: (),
            usages=lambda _uid: {},
            node="n1",
            with_dcgm=True,
        )
    )
    metrics.registry.register(SlicesCollector(lambda: 1.0))
    families = [family.name + ("_total" if family.type == "counter" else "") for family in metrics.registry.collect()]
    assert set(re.findall(r"`((?:fairlead_driver|DCGM)_\w+)`", TEXT)) == set(families)


def test_every_profile_is_documented() -> None:
    for name in profiles.known():
        assert f"`{name}`" in TEXT or f":{name}`" in TEXT, name


def test_the_example_profile_works(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(driverVersion.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "node.yaml"
    path.write_text(example)
    devices = slices.build(SimulatedBackend(profiles.load(str(path)), node="n1").inventory()).devices
    assert [device.name for device in devices] == ["gpu-0", "gpu-1-mig-3g40gb-9-0", "gpu-1-mig-1g10gb-19-4"]
