"""Copies of pods with named claims: each gets claims of its own, in no gang and on any node."""

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.gangs.release import release_patch
from fairlead.kube import nulls
from fairlead.kube.core import Pod
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.verdict import apply_patch
from tests.support.webhook import admitted, facts, patched, review

Json = dict[str, Any]
KNOWN = facts(signing_key=b"key")
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RACK: Json = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
NOT_N9: Json = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
OTHER: Json = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}


def affinity(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}} if terms else {}


def original(**spec: Any) -> Json:
    """A member of gang llm with a template, a limit and a claim of the user's, as it is stored."""
    container = {"name": "c", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: 1}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "h100"}, {"name": "mine", "resourceClaimName": "shared"}]
    notes = {names.GANG: "llm", names.GANG_SIZE: "2", "example.com/note": "stays"}
    metadata = {"name": "train-0", "namespace": "ml", "ownerReferences": [JOB], "annotations": notes}
    body = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container], "resourceClaims": claims} | spec}
    stored, verdict = admitted(body, KNOWN)
    assert verdict.allowed, verdict.message
    assert names.CLAIM_SOURCES in stored["metadata"]["annotations"]
    return stored


def released(stored: Json, node: str = "n1") -> Json:
    """As the controller releases it."""
    read = copy.deepcopy(stored)
    read["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    operations = release_patch(nulls.convert(read, Pod), node)
    return apply_patch(stored, [each for each in operations if each["op"] != "test"])


def copied(stored: Json) -> Json:
    """As `kubectl debug --copy-to` makes it: no owner, no labels, no node."""
    made = copy.deepcopy(stored)
    made["metadata"] = {"name": "copy", "namespace": "ml", "annotations": made["metadata"]["annotations"]}
    made["spec"].pop("nodeName", None)
    return made


@pytest.mark.parametrize("gated", [True, False])
def test_a_copy_gets_its_templates_back_and_leaves_the_gang(gated: bool) -> None:
    first = original() if gated else released(original())
    first["metadata"]["annotations"][names.RELEASED_AT] = "2099-01-01T00:00:00Z"
    stored, verdict = admitted(copied(first), KNOWN)
    assert verdict.allowed, verdict.message
    assert stored["metadata"]["annotations"] == {"example.com/note": "stays"}
    assert stored["spec"]["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "h100"},
        {"name": "mine", "resourceClaimName": "shared"},
        {"name": "fairlead-gpu-0", "resourceClaimTemplateName": "fairlead-gpu-1"},
    ]
    assert "affinity" not in stored["spec"]
    assert stored["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]
    said, stripped = verdict.warnings[:2]
    assert "the pod is a copy: it gets claims of its own (gpu from h100, fairlead-gpu-0 from fairlead-gpu-1)" in said
    assert "fairlead.dev/released-at]: only the controller writes this; it was taken off" in stripped


@pytest.mark.parametrize("terms", [[RACK], [RACK, OTHER], [NOT_N9], [NOT_N9 | RACK, {}]], ids=str)
def test_only_the_controllers_pin_is_taken_off(terms: list[Json]) -> None:
    stored, _ = admitted(copied(released(original(**affinity(*terms)))), KNOWN)
    assert stored["spec"]["affinity"] == affinity(*terms)["affinity"]


PINNED: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.mark.parametrize(
    "terms",
    [[PINNED | RACK, RACK], [PINNED, {"matchFields": [PINNED["matchFields"][0] | {"values": ["n2"]}]}], [NOT_N9]],
    ids=str,
)
def test_what_the_controller_cannot_have_written_stays(terms: list[Json]) -> None:
    """Of an original that went without our gate: it pins every term to one node."""
    body = copied(original()) | {}
    body["spec"] |= affinity(*terms)
    body["spec"]["schedulingGates"] = []
    assert admitted(body, KNOWN)[0]["spec"]["affinity"] == affinity(*terms)["affinity"]


def test_a_users_own_pin_on_a_pod_that_was_not_released_stays() -> None:
    assert admitted(copied(original(**affinity(PINNED))), KNOWN)[0]["spec"]["affinity"] == affinity(PINNED)["affinity"]


def test_a_copy_needs_no_signature_since_it_asks_for_no_more_than_its_author_could() -> None:
    """In another namespace, from a backup, or written by hand: what it names is judged like any pod's entry."""
    body = copied(original())
    body["metadata"]["namespace"] = "prod"
    stored, verdict = admitted(body, facts())
    assert verdict.allowed
    assert "ResourceClaimTemplate prod/h100 does not exist" in verdict.warnings[1]
    assert names.CLAIM_SOURCES not in stored["metadata"]["annotations"]


def test_a_copy_whose_record_cannot_be_read_is_refused() -> None:
    body = copied(original())
    body["metadata"]["annotations"][names.CLAIM_SOURCES] = "{"
    verdict = dispatch.mutate(review(body), KNOWN)
    assert (verdict.allowed, verdict.code) == (False, 422)
    assert "metadata.annotations[fairlead.dev/claim-sources]: not JSON" in verdict.message
    assert "remove it, and write resourceClaimTemplateName" in verdict.message


def test_a_copy_with_its_owner_is_a_second_pass_and_keeps_the_names() -> None:
    """`kubectl get -o yaml | kubectl create`: the claims are the original's, so the controller gives this one none of them."""
    body = released(original())
    body["metadata"]["name"] = "train-1"
    verdict = dispatch.mutate(review(body), KNOWN)
    assert verdict.allowed
    assert patched(body, verdict)["spec"]["resourceClaims"] == body["spec"]["resourceClaims"]
    placed = body | {"spec": body["spec"] | {"nodeName": "n1"}}
    assert "spec.nodeName: 'n1'" in dispatch.mutate(review(placed), KNOWN).message
