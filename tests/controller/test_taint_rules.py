"""DeviceTaintRules count where the cluster serves them, and what is kept of slices is not their devices."""

from typing import Any

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.resources import CRDS, DEVICE_TAINT_RULES

from .conftest import Bench

RULE: dict[str, Any] = {
    "metadata": {"name": "maintenance"},
    "spec": {
        "deviceSelector": {"driver": names.DRIVER},
        "taint": {"key": "example.com/maintenance", "effect": "NoSchedule"},
    },
}


async def serve_rules(bench: Bench) -> None:
    """As a 1.37 apiserver does of itself."""
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
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await bench.client.create(resources.raw(CRDS), body)


async def test_devices_under_a_rule_are_not_allocated_until_it_is_deleted(bench: Bench):
    await serve_rules(bench)
    await bench.client.create(resources.raw(DEVICE_TAINT_RULES), RULE)
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        waits = "example.com/maintenance"
        await bench.until(lambda: waits in str(bench.status("solo")), "the taint is the reason")
        await bench.client.delete(DEVICE_TAINT_RULES, "maintenance")
        await bench.until(lambda: bench.running(["solo"]), "it runs once the rule is gone")
