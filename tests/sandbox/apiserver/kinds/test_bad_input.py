"""No body makes the server fail: well-formed objects of many kinds, broken at random, get an answer below 500."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.apiserver.served import Served

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
RESOURCE = "/apis/resource.k8s.io/v1"
RULE = {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]}
POD = {
    "containers": [
        {
            "name": "c",
            "image": "x",
            "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "g"}]},
            "env": [{"name": "A"}],
        }
    ],
    "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}],
    "schedulingGates": [{"name": "example.com/g"}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
            }
        }
    },
}
DEVICES = {
    "requests": [
        {"name": "a", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}]}},
        {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c", "count": 2}]},
    ],
    "constraints": [{"requests": ["a", "b/x"], "matchAttribute": "d.example.com/a"}],
    "config": [{"requests": ["a"], "opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
}
SLICE = {
    "driver": "d.example.com",
    "nodeName": "n",
    "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    "devices": [
        {
            "name": "g",
            "attributes": {"a": {"int": 1}, "v": {"version": "1.0.0"}},
            "capacity": {"m": {"value": "1Gi", "requestPolicy": {"default": "1Mi", "validRange": {"min": "1Mi"}}}},
            "allowMultipleAllocations": True,
            "taints": [{"key": "k", "effect": "NoSchedule"}],
            "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
        }
    ],
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}}},
    "x-kubernetes-validations": [{"rule": "has(self.spec)", "messageExpression": "'a'"}],
}
SEEDS: list[tuple[str, dict[str, Any]]] = [
    ("/api/v1/namespaces/ml/pods", {"spec": POD}),
    (
        "/apis/batch/v1/namespaces/ml/jobs",
        {"spec": {"completions": 2, "template": {"spec": {**POD, "restartPolicy": "Never"}}}},
    ),
    (f"{RESOURCE}/namespaces/ml/resourceclaims", {"spec": {"devices": DEVICES}}),
    (f"{RESOURCE}/namespaces/ml/resourceclaimtemplates", {"spec": {"spec": {"devices": DEVICES}}}),
    (f"{RESOURCE}/resourceslices", {"spec": SLICE}),
    (f"{RESOURCE}/deviceclasses", {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
    (
        "/api/v1/nodes",
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}}},
    ),
    ("/api/v1/namespaces/ml/services", {"spec": {"ports": [{"port": 1, "targetPort": "a"}]}}),
    ("/api/v1/namespaces/ml/secrets", {"data": {"a": "YQ=="}, "stringData": {"b": "c"}}),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "metadata": {"name": "as.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "A", "plural": "as"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": SCHEMA},
                        "additionalPrinterColumns": [{"name": "X", "type": "string", "jsonPath": ".spec.x[0]"}],
                    }
                ],
            },
        },
    ),
    ("/apis/example.com/v1/namespaces/ml/as", {"spec": {"x": ["a", "b"]}}),
    (
        f"{REGISTRATIONS}/validatingadmissionpolicies",
        {
            "spec": {
                "matchConstraints": {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"a": "b"}}},
                "matchConditions": [{"name": "a", "expression": "true"}],
                "variables": [{"name": "a", "expression": "1"}],
                "validations": [{"expression": "true", "messageExpression": "'a'"}],
            }
        },
    ),
    (
        f"{REGISTRATIONS}/validatingadmissionpolicybindings",
        {
            "spec": {
                "policyName": "m",
                "validationActions": ["Deny"],
                "paramRef": {"name": "x", "parameterNotFoundAction": "Deny"},
            }
        },
    ),
    (
        f"{REGISTRATIONS}/mutatingwebhookconfigurations",
        {
            "webhooks": [
                {
                    "name": "a.b.c",
                    "clientConfig": {"service": {"name": "a", "namespace": "b"}},
                    "rules": [RULE],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ]
        },
    ),
    ("/apis/policy/v1/namespaces/ml/poddisruptionbudgets", {"spec": {"minAvailable": "5%"}}),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ),
]
WRONG: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "x",
    [None],
    {"a": None},
    [[]],
    "\x00",
    "é" * 300,
    2**70,
    [{}],
    {"": ""},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def broken(body: dict[str, Any], random: Random) -> dict[str, Any]:
    """The body with one to three places removed or replaced."""
    body = copy.deepcopy(body)
    for _ in range(random.choice((1, 1, 2, 3))):
        found = [path for path in places(body) if path]
        if not found:
            break
        *above, last = random.choice(found)
        parent: Any = body
        for step in above:
            parent = parent[step]
        if random.random() < 0.25:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(random.choice(WRONG))
    return body


@pytest.mark.parametrize("seed", range(4))
async def test_a_broken_body_is_the_clients_fault(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    api = Served(tmp_path, now=datetime(2026, 11, 20, 12, tzinfo=UTC), random=Random(1))
    await api.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for step in range(400):
        path, seeded = random.choice(SEEDS)
        whole = {"metadata": {"name": f"m{step}"}, **seeded}
        body = broken(whole, random) if step % 10 else whole
        code, answer = await api.post(path, body)
        assert code < 500, f"seed {seed}, step {step}: {path} {body}: {answer}"
        if code == 201:
            code, answer = await api.get(path, headers=table)
            assert code < 500, f"seed {seed}, step {step}: GET {path}: {answer}"
    await api.close()


async def test_the_bodies_that_are_broken_are_whole_to_begin_with(api: Served) -> None:
    for path, seeded in SEEDS:
        code, answer = await api.post(path, {"metadata": {"name": "m"}, **seeded})
        assert code == 201, f"{path}: {answer}"
