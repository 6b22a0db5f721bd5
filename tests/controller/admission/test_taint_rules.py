"""DeviceTaintRules count where the cluster serves them, and what is kept of slices is not their devices."""

import dataclasses
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.resources import DEVICE_TAINT_RULES
from tests.controller.admission.test_podgroups import serve
from tests.controller.conftest import Bench

RULE: dict[str, Any] = {
    "metadata": {"name": "maintenance"},
    "spec": {
        "deviceSelector": {"driver": names.DRIVER},
        "taint": {"key": "example.com/maintenance", "effect": "NoSchedule"},
    },
}


async def serve_rules(bench: Bench, version: str = "v1") -> None:
    """As an apiserver does of itself: 1.37 in v1, earlier ones in the other versions where an operator asks for them."""
    await serve(bench, dataclasses.replace(resources.raw(DEVICE_TAINT_RULES), version=version))


async def test_devices_under_a_rule_are_not_allocated_until_it_is_deleted(
    bench: Bench, caplog: pytest.LogCaptureFixture
):
    """A rule that 1.34 selects by class is said to count for more."""
    rules = dataclasses.replace(resources.raw(DEVICE_TAINT_RULES), version="v1alpha3")
    await serve_rules(bench, "v1alpha3")
    selector = {"driver": names.DRIVER, "deviceClassName": "some"}
    await bench.client.create(rules, {**RULE, "spec": {**RULE["spec"], "deviceSelector": selector}})
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        await bench.until(lambda: "example.com/maintenance" in str(bench.status("solo")), "the taint is the reason")
        await bench.client.delete(rules, "maintenance")
        await bench.until(lambda: bench.running(["solo"]), "it runs once the rule is gone")
    (said,) = {r.getMessage() for r in caplog.records if "DeviceTaintRule" in r.getMessage()}
    assert said == (
        "DeviceTaintRule maintenance: spec.deviceSelector.deviceClassName is not evaluated; its taint counts for every device of "
        f"driver {names.DRIVER}, pool any, device any; select by these three alone"
    )
