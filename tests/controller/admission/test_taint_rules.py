"""DeviceTaintRules count where the cluster serves them, and what is kept of slices is not their devices."""

import dataclasses
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.resources import CRDS, DEVICE_TAINT_RULE_VERSIONS, DEVICE_TAINT_RULES
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
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kind = {"plural": "devicetaintrules", "singular": "devicetaintrule", "kind": "DeviceTaintRule"}
    body = {
        "metadata": {
            "name": "devicetaintrules.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/5055"},
        },
        "spec": {
            "group": "resource.k8s.io",
            "names": {**kind, "listKind": "DeviceTaintRuleList"},
            "scope": "Cluster",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await bench.client.create(resources.raw(CRDS), body)


@pytest.mark.parametrize("version", DEVICE_TAINT_RULE_VERSIONS)
async def test_devices_under_a_rule_are_not_allocated_until_it_is_deleted(bench: Bench, version: str):
    rules = dataclasses.replace(resources.raw(DEVICE_TAINT_RULES), version=version)
    await serve_rules(bench, version)
    await bench.client.create(rules, RULE)
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        waits = "example.com/maintenance"
        await bench.until(lambda: waits in str(bench.status("solo")), "the taint is the reason")
        await bench.client.delete(rules, "maintenance")
        await bench.until(lambda: bench.running(["solo"]), "it runs once the rule is gone")


async def test_a_rule_that_1_34_selects_by_class_is_said_to_count_for_more(bench: Bench, caplog):
    rules = dataclasses.replace(resources.raw(DEVICE_TAINT_RULES), version="v1alpha3")
    await serve_rules(bench, "v1alpha3")
    selector = {"driver": names.DRIVER, "deviceClassName": "some"}
    await bench.client.create(rules, {**RULE, "spec": {**RULE["spec"], "deviceSelector": selector}})
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        await bench.until(lambda: "example.com/maintenance" in str(bench.status("solo")), "the taint is the reason")
    (said,) = {r.getMessage() for r in caplog.records if "DeviceTaintRule" in r.getMessage()}
    assert said == (
        "DeviceTaintRule maintenance: spec.deviceSelector.deviceClassName is not evaluated; its taint counts for every device of "
        f"driver {names.DRIVER}, pool any, device any; select by these three alone"
    )
