"""Fields that are null, and fields that are not known: a review with nulls gets the verdict of one in which they are absent, and a
patch that applies to it; what the webhook does not know stays as it is.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.nulls import without_nulls
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.policy.policies import SelectingPolicy
from fairlead.webhook.review.envelope import BadReviewError, Review, decode
from fairlead.webhook.review.facts import Facts, needs
from tests.support.webhook import facts, patched, review

Json = dict[str, Any]
Place = tuple[str | int, ...]

METADATA: Json = {
    "name": "a",
    "namespace": "ml",
    "annotations": {names.GANG: "g", names.GANG_SIZE: "2"},
    "labels": {"x": "y"},
}
LEGACY = {names.LEGACY_GPU: "1", "cpu": "2", "memory": "1Gi"}
POD_SPEC: Json = {
    "containers": [
        {
            "name": "main", "env": [{"name": "A", "value": "b"}], "securityContext": {"privileged": False},
            "resources": {"requests": LEGACY, "limits": LEGACY, "claims": [{"name": "gpu"}]},
        }
    ],
    "initContainers": [{"name": "setup", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "h100"}],
    "schedulingGates": [{"name": "example.com/other"}],
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "nodeSelector": {"disk": "ssd"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}], "matchFields": []}
                ]
            }
        }
    },
    "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}],
    "restartPolicy": "Never",
}  # fmt: skip
POD: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": POD_SPEC, "status": {"conditions": []}}
JOB: Json = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": METADATA,
    "spec": {
        "parallelism": 2, "completions": 2, "suspend": False, "backoffLimit": 3,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {"metadata": {"annotations": {names.QUEUE: "q"}, "labels": {}}, "spec": POD_SPEC},
    },
}  # fmt: skip
CLAIM_SPEC: Json = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": names.GPU_CLASS, "count": 2, "allocationMode": "ExactCount",
                    "selectors": [{"cel": {"expression": "true"}}], "tolerations": [{"key": "k", "operator": "Exists"}],
                    "capacity": {"requests": {"memory": "10Gi"}},
                },
            },
        ],
        "constraints": [{"requests": ["gpu"], "matchAttribute": "a/b"}],
        "config": [
            {
                "requests": ["gpu"],
                "opaque": {
                    "driver": names.DRIVER,
                    "parameters": {
                        "apiVersion": names.CONFIG_API_VERSION, "kind": "GpuConfig",
                        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}},
                    },
                },
            }
        ],
    }
}  # fmt: skip
TEMPLATE: Json = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": METADATA,
    "spec": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM_SPEC},
}  # fmt: skip
CLAIM: Json = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": METADATA, "spec": CLAIM_SPEC}
CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}],
        "config": [{"opaque": CLAIM_SPEC["devices"]["config"][0]["opaque"]}],
    },
}  # fmt: skip
POLICY: Json = {
    "metadata": {"name": "p"},
    "spec": {
        "podFailurePolicy": "Default", "deviceBypass": "Reject", "resourceRequests": "EqualLimits", "maxDevicesPerClaim": 4,
        "tolerations": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        "nodeAffinity": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    },
}  # fmt: skip


def known() -> Facts:
    return facts(policies=(TenancyPolicy.stored(POLICY),))


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*at, key)
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))


def edited(document: Json, place: Place, *, absent: bool) -> Json:
    document = copy.deepcopy(document)
    holder: Any = document
    for step in place[:-1]:
        holder = holder[step]
    if absent:
        del holder[place[-1]]
    else:
        holder[place[-1]] = None
    return document


def outcomes(object_: Json, given: Review) -> list[object]:
    """Both verdicts and the object that would be stored, its nulls dropped as the apiserver drops them."""
    found: list[object] = []
    for step in (dispatch.mutate, dispatch.validate):
        try:
            needs(given)
            verdict = step(given, known())
        except MalformedError as error:
            found.append(str(error))
            continue
        found += [verdict.allowed, verdict.message, verdict.warnings, verdict.audit]
        if verdict.patch:
            found.append(without_nulls(patched(object_, verdict)))
    return found


@pytest.mark.parametrize("document", [POD, JOB, TEMPLATE, CLAIM, CLASS], ids=lambda document: document["kind"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_null_is_judged_as_an_absent_field_at_every_place(document: Json, operation: str) -> None:
    for place in places(document):
        if place in {("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")}:
            continue
        if len(place) > 1 and place[-2] in {"requests", "limits"}:  # the apiserver has made a 0 of a null quantity
            continue
        results = []
        for absent in (False, True):
            object_ = edited(document, place, absent=absent)
            old = copy.deepcopy(object_) if operation == "UPDATE" else None
            results.append(outcomes(object_, review(object_, operation=operation, old=old)))
        assert results[0] == results[1], place


def structs(value: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every object in a document that is not a map of texts or quantities, or parameters of a driver."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            if key not in {"annotations", "labels", "nodeSelector", "limits", "requests", "parameters"}:
                yield from structs(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from structs(inner, f"{path}[{index}]")


@pytest.mark.parametrize("document", [POD, JOB], ids=lambda document: document["kind"])
def test_a_patch_keeps_every_field_that_the_webhook_does_not_know(document: Json) -> None:
    object_ = copy.deepcopy(document)
    del object_["spec"].get("template", object_)["spec"]["volumes"]  # which the policy would refuse
    init = object_["spec"].get("template", object_)["spec"]["initContainers"][0]
    init["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    for path, struct in structs(object_):
        struct["later"] = path
    verdict = dispatch.mutate(review(object_), known())
    assert verdict.allowed, verdict.message
    assert verdict.patch
    kept = [struct["later"] for _, struct in structs(patched(object_, verdict)) if "later" in struct]
    assert kept == [path for path, _ in structs(object_)]


ENVELOPE: Json = {
    "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "name": "a", "namespace": "ml",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "", "requestSubResource": "",
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "alice", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}},
        "object": POD, "oldObject": {}, "dryRun": True, "options": {"kind": "CreateOptions"},
    },
}  # fmt: skip


def test_a_null_in_the_envelope_reads_as_absent() -> None:
    for place in places({key: value for key, value in ENVELOPE.items() if key == "request"}):
        if "object" in place[1:2] and len(place) > 2:
            continue
        found: list[object] = []
        for absent in (False, True):
            try:
                found.append(decode(json.dumps(edited(ENVELOPE, place, absent=absent)).encode()))
            except BadReviewError as error:
                found.append(str(error))
        assert found[0] == found[1], place


def test_policies_of_the_cluster_with_nulls_are_read() -> None:
    raw = {
        "metadata": {"name": "p", "labels": None},
        "spec": {"rules": None, "namespaceSelector": {"matchLabels": None}},
    }
    assert SelectingPolicy.of(TenancyPolicy.stored(raw)).selector.matches({})
