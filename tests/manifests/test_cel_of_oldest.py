"""Every CEL expression that an installation writes compiles in the oldest release, as a new one: policies, CRDs, classes, webhooks.

An apiserver of that release judges: the sandbox's, which admits in new expressions what the release before it knew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.policy import TenancyPolicy
from fairlead.kube.releases import OLDEST
from fairlead.sandbox.install import manifests
from fairlead.webhook.registration import configurations
from fairlead.webhook.registration.configurations import Target
from tests.support.apiserver.served import Served

ROOT = Path(__file__).parents[2] / "manifests"
FOLDERS = ("base", "overlays/nvidia-driver", "overlays/simulated", "overlays/ui")
EXAMPLES = ROOT.parent / "examples"
PATHS = {
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
}
EVERYTHING = {
    "controller": {"nominateNodes": True},
    "autoscaling": {"provisioningRequests": True, "placeholders": True},
    "driver": {"nodeLabels": {"enabled": True, "migStrategy": "single"}},
    "deviceClasses": {"singleMigAsGpu": True},
}
UNFENCED = {
    "driver": {"nodeLabels": {"enabled": True, "migStrategy": "mixed"}, "migLayouts": {"enabled": True}},
    "deviceClasses": {"extendedResources": {"enabled": True, "migProfiles": ["1g.10gb"]}},
    "policies": {"allocationFence": False},
}
Object = dict[str, Any]


def texts(value: Any) -> Iterator[str]:
    """Every expression of an object, wherever it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in {"expression", "rule", "messageExpression", "valueExpression"}:
                yield inner
            else:
                yield from texts(inner)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


@pytest.fixture
async def oldest(tmp_path: Path) -> Any:
    served = Served(tmp_path, release=OLDEST)
    yield served
    await served.close()


async def refusals(oldest: Served, objects: list[Object]) -> tuple[int, list[str]]:
    """How many expressions were judged, and what the apiserver says of objects that it refuses."""
    judged, refused = 0, []
    for each in objects:
        found = list(texts(each))
        if not found or each["kind"] not in PATHS:
            continue
        judged += len(found)
        body = copy.deepcopy(each)
        body["metadata"].pop("namespace", None)
        status, answer = await oldest.post(f"{PATHS[each['kind']]}?dryRun=All", body)
        if status != 201:
            refused.append(answer["message"])
    return judged, refused


@pytest.mark.parametrize("folder", FOLDERS)
async def test_the_oldest_release_compiles_every_expression_of_the_manifests(oldest: Served, folder: str) -> None:
    judged, refused = await refusals(oldest, manifests.load(ROOT / folder))
    assert refused == []
    assert judged > 40


@pytest.mark.parametrize("values", [EVERYTHING, UNFENCED], ids=["everything", "unfenced"])
async def test_the_oldest_release_compiles_every_expression_of_the_chart(
    oldest: Served, template: Callable[..., list[Object]], values: Object
) -> None:
    judged, refused = await refusals(oldest, template(values=values))
    assert refused == []
    assert judged > 30


async def test_the_oldest_release_compiles_every_selector_of_the_examples(oldest: Served) -> None:
    objects = [
        each
        for file in sorted(EXAMPLES.glob("*/*.yaml"))
        for each in manifests.load(file)
        if each["kind"].startswith("Resource")
    ]
    judged, refused = await refusals(oldest, objects)
    assert refused == []
    assert judged > 5


async def test_the_oldest_release_compiles_the_match_conditions_that_the_webhook_registers(oldest: Served) -> None:
    target = Target(bundle="", url="https://127.0.0.1:9443")
    policies = tuple(
        TenancyPolicy.read(
            {
                "metadata": {"name": f"p-{mode.lower()}"},
                "spec": {"maxGangSize": 8, "deviceBypass": "Reject", "mode": mode},
            }
        )
        for mode in ("Enforce", "Warn")
    )
    for each in (target, replace(target, policies=policies)):
        found = [configurations.mutating(each), configurations.validating(each)]
        judged, refused = await refusals(oldest, found)
        assert refused == []
        assert judged > 10


async def test_flatten_in_a_policy_or_in_a_rule_of_a_definition_is_found(oldest: Served) -> None:
    policy = next(
        each
        for each in manifests.load(ROOT / "base")
        if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "fairlead-webhook-configurations")
    )
    policy["spec"]["variables"].append({"name": "planted", "expression": "[[1]].flatten()"})
    _, (refused,) = await refusals(oldest, [policy])
    assert "undeclared reference to 'flatten'" in refused
    assert "spec.variables[2].expression" in refused
    definition = next(each for each in manifests.load(ROOT / "base") if each["kind"] == "CustomResourceDefinition")
    rule = {"rule": "[[1]].flatten().size() == 1"}
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [rule]
    _, (refused,) = await refusals(oldest, [definition])
    assert "undeclared reference to 'flatten'" in refused
