"""The resourceclaim controller's decisions, as tables of pods and claims."""

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.sandbox.controllers import claims
from fairlead.sandbox.controllers.claims import PodFact

Obj = dict[str, Any]

TEMPLATE: Obj = {
    "metadata": {"name": "one-gpu", "namespace": "ml"},
    "spec": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.fairlead.dev"}}]}},
    },
}


def pod(*, claim_status: str | None = None, gated: bool = False, node: str = "", **metadata: Any) -> Obj:
    made: Obj = {
        "metadata": {"name": "train-0", "namespace": "ml", "uid": "pod-1", **metadata},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}], "containers": []},
        "status": {"phase": "Pending"},
    }
    if gated:
        made["spec"]["schedulingGates"] = [{"name": names.ADMISSION_GATE}]
    if node:
        made["spec"]["nodeName"] = node
    if claim_status:
        made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim_status}]
    return made


def claim(
    *,
    name: str = "train-0-gpu-abcde",
    owner: str | None = "pod-1",
    finalizer: bool = True,
    allocated: bool = True,
    reserved: tuple[Obj, ...] = (),
    deleting: bool = False,
) -> Obj:
    made: Obj = {
        "metadata": {"name": name, "namespace": "ml", "uid": "claim-1", "annotations": {names.POD_CLAIM_NAME: "gpu"}},
        "spec": {},
        "status": {},
    }
    if owner:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": owner, "controller": True}
        ]
    if finalizer:
        made["metadata"]["finalizers"] = [names.CLAIM_FINALIZER]
    if allocated:
        made["status"]["allocation"] = {"devices": {"results": [{"driver": "d", "pool": "p", "device": "gpu-0"}]}}
        made["status"]["devices"] = [{"driver": "d", "pool": "p", "device": "gpu-0"}]
    if reserved:
        made["status"]["reservedFor"] = list(reserved)
    if deleting:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


POD_CONSUMER: Obj = {"resource": "pods", "name": "train-0", "uid": "pod-1"}
GANG_CONSUMER: Obj = {"apiGroup": "gang.example.com", "resource": "gangs", "name": "g", "uid": "g-1"}


def work(subject: Obj, *existing: Obj, template: Obj | None = TEMPLATE) -> claims.PodWork:
    by_name = {each["metadata"]["name"]: each for each in existing}
    owned = [each for each in existing if claims.owning_pod(each) == ("train-0", subject["metadata"]["uid"])]
    before = copy.deepcopy((subject, existing))
    result = claims.pod_work(subject, claim=by_name.get, owned=owned, template=lambda _: template)
    assert (subject, existing) == before
    return result


@pytest.mark.parametrize("gated", [False, True])
def test_a_pod_gets_a_claim_from_its_template_gated_or_not(gated: bool) -> None:
    made = work(pod(gated=gated)).creates["gpu"]
    assert made["metadata"]["generateName"] == "train-0-gpu-"
    assert made["metadata"]["annotations"] == {"note": "x", names.POD_CLAIM_NAME: "gpu"}
    assert made["metadata"]["labels"] == {"team": "a"}
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("pod-1", True, True)
    assert made["spec"] == TEMPLATE["spec"]["spec"]


def test_a_claim_that_another_controller_made_for_the_pod_is_adopted_untouched() -> None:
    result = work(pod(), claim(name="train-0-gpu-f41r1"))
    assert (result.creates, result.adopts) == ({}, {"gpu": "train-0-gpu-f41r1"})


def test_a_claim_deleted_while_its_pod_waits_is_made_anew() -> None:
    assert "gpu" in work(pod(claim_status="train-0-gpu-abcde")).creates


def test_a_missing_template_is_an_error_that_names_it() -> None:
    assert work(pod(), template=None).errors == ('resource claim template "one-gpu" not found',)


def test_new_names_join_those_already_in_the_status() -> None:
    subject = pod(claim_status="one")
    assert claims.claim_statuses(subject, {"net": "two"}) == [
        {"name": "gpu", "resourceClaimName": "one"},
        {"name": "net", "resourceClaimName": "two"},
    ]


def test_a_pod_bound_by_something_else_gets_its_allocated_claims_reserved() -> None:
    subject = pod(claim_status="train-0-gpu-abcde", node="n1")
    found = {"train-0-gpu-abcde": claim()}
    assert claims.claims_to_reserve(subject, claim=found.get) == [claim()]
    assert claims.claims_to_reserve(pod(claim_status="train-0-gpu-abcde"), claim=found.get) == []


def test_a_finished_pod_is_never_reserved_again() -> None:
    subject = pod(claim_status="train-0-gpu-abcde", node="n1")
    subject["status"]["phase"] = "Succeeded"
    assert claims.claims_to_reserve(subject, claim=lambda _: claim()) == []


CLAIM_CASES: list[tuple[str, Obj, PodFact, dict[str, Any]]] = [
    ("allocated, never reserved: left alone", claim(), PodFact.LIVE, {}),
    ("its pod lives: left alone", claim(reserved=(POD_CONSUMER,)), PodFact.LIVE, {}),
    (
        "last consumer gone: deallocated, finalizer dropped, template claim deleted",
        claim(reserved=(POD_CONSUMER,)),
        PodFact.GONE,
        {"status": {}, "drop_finalizer": True, "delete": True},
    ),
    (
        "named claim, last consumer gone: deallocated but kept",
        claim(owner=None, reserved=(POD_CONSUMER,)),
        PodFact.GONE,
        {"status": {}, "drop_finalizer": True},
    ),
    (
        "without the finalizer the allocation leaks",
        claim(owner=None, finalizer=False, reserved=(POD_CONSUMER,)),
        PodFact.GONE,
        {"status": {k: v for k, v in claim()["status"].items() if k != "reservedFor"}},
    ),
    (
        "an unknown consumer keeps the allocation",
        claim(owner=None, reserved=(POD_CONSUMER, GANG_CONSUMER)),
        PodFact.GONE,
        {"status": {**claim()["status"], "reservedFor": [GANG_CONSUMER]}},
    ),
    (
        "deleted and unused: finalizer dropped",
        claim(allocated=False, deleting=True),
        PodFact.LIVE,
        {"drop_finalizer": True},
    ),
    (
        "deleted, allocated, never used: deallocated first",
        claim(deleting=True),
        PodFact.LIVE,
        {"status": {}, "drop_finalizer": True},
    ),
    ("deleted but in use: left alone", claim(deleting=True, reserved=(POD_CONSUMER,)), PodFact.LIVE, {}),
    (
        "a template claim of a pod that is done goes",
        claim(allocated=False, finalizer=False),
        PodFact.GONE,
        {"delete": True},
    ),
    ("an owner that is not known yet keeps its claim", claim(allocated=False), PodFact.UNKNOWN, {}),
]


@pytest.mark.parametrize(
    ("subject", "fact", "want"), [case[1:] for case in CLAIM_CASES], ids=[c[0] for c in CLAIM_CASES]
)
def test_a_claim_is_cleaned_up_as_kubernetes_does(subject: Obj, fact: PodFact, want: dict[str, Any]) -> None:
    before = copy.deepcopy(subject)
    result = claims.claim_work(subject, consumer=lambda _: fact, owner=lambda _name, _uid: fact)
    assert result == claims.ClaimWork(**want)
    assert subject == before


def test_a_pod_is_gone_when_replaced_finished_or_deleted_before_it_had_a_node() -> None:
    assert claims.pod_fact(None, "pod-1") is PodFact.UNKNOWN
    assert claims.pod_fact(pod(), "pod-1") is PodFact.LIVE
    assert claims.pod_fact(pod(), "an-older-pod") is PodFact.GONE
    deleted = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    assert claims.pod_fact(deleted, "pod-1") is PodFact.GONE
    deleted["spec"]["nodeName"] = "n1"
    assert claims.pod_fact(deleted, "pod-1") is PodFact.LIVE
