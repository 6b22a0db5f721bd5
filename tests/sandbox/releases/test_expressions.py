"""The CEL that each release admits in new policies, match conditions, rules of CRDs and selectors of devices."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.kube.releases import TRIED, Minor
from tests.sandbox.releases.conftest import Of

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
LISTS = "[[true]].flatten()[0]"
Json = dict[str, Any]


def policy(text: str) -> tuple[str, Json]:
    spec = {"matchConstraints": {"resourceRules": RULES}, "validations": [{"expression": text}]}
    return f"{REGISTRATIONS}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec}


def webhook(text: str) -> tuple[str, Json]:
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1"},
        "rules": RULES,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "m", "expression": text}],
    }
    return f"{REGISTRATIONS}/validatingwebhookconfigurations", {"metadata": {"name": "w"}, "webhooks": [hook]}


def definition(text: str) -> tuple[str, Json]:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": text}]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version],
    }
    return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "metadata": {"name": "things.example.com"},
        "spec": spec,
    }


def device_class(text: str) -> tuple[str, Json]:
    spec = {"selectors": [{"cel": {"expression": text}}]}
    return "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "c"}, "spec": spec}


def claim(text: str) -> tuple[str, Json]:
    exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": text}}]}
    spec = {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}
    return "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims", {"metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize("where", [policy, webhook, definition, device_class, claim])
@pytest.mark.parametrize("minor", TRIED)
async def test_lists_are_for_new_expressions_since_1_35(of: Of, minor: Minor, where: Any) -> None:
    async with of(minor) as api:
        path, body = where(LISTS)
        status, answer = await api.post(path, body)
        assert status == (422 if minor == (1, 34) else 201)
        if status == 422:
            assert "undeclared reference to 'flatten' (in container '')" in answer["message"]


@pytest.mark.parametrize(("minor", "admitted"), [((1, 34), False), ((1, 35), False), ((1, 36), True)])
async def test_a_selector_reads_allow_multiple_allocations_since_1_36(of: Of, minor: Minor, admitted: bool) -> None:
    async with of(minor) as api:
        path, body = claim("device.allowMultipleAllocations")
        assert (await api.post(path, body))[0] == (201 if admitted else 422)
