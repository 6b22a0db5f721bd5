"""Pods: manifest in, verdict and patch out."""

import copy
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import Facts, GangMember
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import admitted, claim_spec, facts, review

Json = dict[str, Any]
GATE = {"name": names.ADMISSION_GATE}
REVIEWED = {names.REVIEWED: names.REVIEWED_TEMPLATE}


def pod(
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    template: str | None = "h100",
    name: str = "train-0",
    **spec: Any,
) -> Json:
    container: Json = {"name": "worker", "image": "busybox", "resources": {}}
    body: Json = {"containers": [container]}
    if template is not None:
        body["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    metadata: Json = {"name": name, "namespace": "ml"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body | spec}


def gates(stored: Json) -> list[str]:
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", [])]


class TestGate:
    def test_gates_of_others_stay_where_they_are(self) -> None:
        stored, _ = admitted(pod(schedulingGates=[{"name": "example.com/quota"}]), facts())
        assert gates(stored) == ["example.com/quota", names.ADMISSION_GATE]

    def test_a_gated_pod_is_labelled_and_keeps_the_label_of_its_template(self) -> None:
        for labels, wanted in ({}, names.REVIEWED_POD), (REVIEWED, names.REVIEWED_TEMPLATE):
            stored, _ = admitted(pod(labels=labels), facts())
            assert stored["metadata"]["labels"] == {names.REVIEWED: wanted}
        other = dispatch.mutate(review(pod(template="nic")), facts())
        assert other.patch == (), "what is not managed gets none"

    def test_a_named_claim_counts_too(self) -> None:
        body = pod(template=None, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
        stored, _ = admitted(body, facts(claims={("ml", "shared"): claim_spec()}))
        assert gates(stored) == [names.ADMISSION_GATE]

    def test_an_unknown_class_is_gated_with_a_warning(self) -> None:
        stored, verdict = admitted(pod(), facts(templates={("ml", "h100"): claim_spec("later.example.com")}))
        assert gates(stored) == [names.ADMISSION_GATE]
        assert "DeviceClass later.example.com does not exist" in verdict.warnings[0]

    def test_a_selector_that_no_device_of_ours_can_pass_leaves_the_pod_alone(self) -> None:
        known = facts(templates={("ml", "h100"): claim_spec("any", "device.driver == 'x.example.com'")})
        assert dispatch.mutate(review(pod()), known).cause == "unmanaged"

    def test_which_drivers_are_managed_is_configuration(self) -> None:
        known = facts(drivers=("nic.example.com",))
        assert gates(admitted(pod(template="nic"), known)[0]) == [names.ADMISSION_GATE]
        assert dispatch.mutate(review(pod(template="h100")), known).patch == ()

    def test_a_pod_that_chose_its_node_and_may_be_foreign_is_left_alone(self) -> None:
        # Kubernetes takes no gate on such a pod.
        assert dispatch.mutate(review(pod(template="later", nodeName="n1")), facts()).patch == ()

    def test_a_pod_without_its_gate_is_denied_for_now(self) -> None:
        verdict = dispatch.validate(review(pod()), facts())
        assert not verdict.allowed
        assert f"the gate {names.ADMISSION_GATE} is missing" in verdict.message
        assert verdict.code == 429  # the mutating half may only have been slow: clients try again

    def test_a_pod_that_another_attempt_would_not_help_is_denied_for_good(self) -> None:
        verdict = dispatch.validate(review(pod(nodeName="n1")), facts())
        assert (verdict.allowed, verdict.code) == (False, 422)

    @pytest.mark.parametrize("namespace", ["kube-system", names.NAMESPACE])
    def test_system_namespaces_are_exempt(self, namespace: str) -> None:
        body = pod()
        body["metadata"]["namespace"] = namespace
        assert dispatch.mutate(review(body), facts()).patch == ()

    def test_an_operator_can_exempt_a_namespace(self) -> None:
        known = facts(namespace_labels={names.IGNORE_LABEL: ""})
        assert dispatch.mutate(review(pod()), known).patch == ()
        assert dispatch.validate(review(pod()), known).allowed

    def test_subresources_are_left_alone(self) -> None:
        verdict = dispatch.validate(review(pod(), operation="UPDATE", subresource="status", old=pod()), facts())
        assert verdict.cause == "unmanaged"


class TestGang:
    def test_a_member_without_size_takes_that_of_the_others(self) -> None:
        known = facts(gangs={("ml", "llm"): (GangMember(name="train-1", size=8),)})
        stored, _ = admitted(pod(annotations={names.GANG: "llm"}), known)
        assert stored["metadata"]["annotations"][names.GANG_SIZE] == "8"

    def test_a_member_of_a_job_older_than_the_webhook_takes_the_jobs_size(self) -> None:
        body = pod(annotations={names.GANG: "llm"})
        body["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "controller": True}]
        stored, _ = admitted(body, facts(jobs={("ml", "train"): 4}))
        assert stored["metadata"]["annotations"][names.GANG_SIZE] == "4"

    def test_a_size_that_disagrees_is_denied_and_the_member_named(self) -> None:
        known = facts(gangs={("ml", "llm"): (GangMember(name="train-0", size=4), GangMember(name="train-1", size=8))})
        _, verdict = admitted(pod(annotations={names.GANG: "llm", names.GANG_SIZE: "4"}), known)
        assert (
            "gang-size]: '4', but member train-1 of gang ml/llm says '8'; give all members one size" in verdict.message
        )

    def test_models_that_disagree_are_denied(self) -> None:
        known = facts(gangs={("ml", "llm"): (GangMember(name="a", size=2, models="same"),)})
        notes = {names.GANG: "llm", names.GANG_SIZE: "2"}
        _, verdict = admitted(pod(annotations={**notes, names.MODELS: "any"}), known)
        assert (
            f"[{names.MODELS}]: 'any', but member a of gang ml/llm says 'same'; give all members the same"
            in verdict.message
        )
        assert admitted(pod(annotations={**notes, names.MODELS: "same"}), known)[1].allowed

    def test_pods_of_a_workload_whose_template_changed_need_not_agree_with_the_old_ones(self) -> None:
        member = GangMember(name="llm-old", size=2, queue="q1", workload="Deployment/llm")
        body = pod(
            annotations={names.GANG: "llm", names.GANG_SIZE: "2", names.QUEUE: "q2"},
            labels={"pod-template-hash": "new"},
        )
        body["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "llm-new", "controller": True}]
        assert admitted(body, facts(gangs={("ml", "llm"): (member,)}))[1].allowed
        other = replace(member, workload="Deployment/other")
        assert not admitted(body, facts(gangs={("ml", "llm"): (other,)}))[1].allowed

    def test_a_queue_or_topology_that_disagrees_is_denied(self) -> None:
        known = facts(gangs={("ml", "llm"): (GangMember(name="a", size=2, queue="q1", topology="required:rack"),)})
        annotations = {
            names.GANG: "llm",
            names.GANG_SIZE: "2",
            names.QUEUE: "q2",
            names.TOPOLOGY: "preferred:rack",
        }
        _, verdict = admitted(pod(annotations=annotations), known)
        assert "'q2', but member a of gang ml/llm says 'q1'" in verdict.message
        assert "'preferred:rack', but member a" in verdict.message

    @pytest.mark.parametrize(
        ("annotations", "labels"),
        [
            ({names.SUBGROUP_SIZE: "4", names.COMPLETION_INDEX: "3"}, {}),
            ({names.SUBGROUP_SIZE: "4"}, {names.STATEFULSET_INDEX: "3"}),
            ({names.SUBGROUP: "a"}, {}),
            ({}, {names.SUBGROUP: "a"}),
            ({}, {names.LWS_NAME: "serve"}),
        ],
    )
    def test_a_member_of_a_subgroup_passes(self, annotations: dict[str, str], labels: dict[str, str]) -> None:
        shared = {names.GANG: "llm", names.GANG_SIZE: "8", names.SUBGROUP_TOPOLOGY: "required:block, required:rack"}
        stored, verdict = admitted(pod(annotations=shared | annotations, labels=labels), facts())
        assert verdict.allowed, verdict.message
        assert not verdict.warnings
        assert gates(stored) == [names.ADMISSION_GATE]

    def test_a_subgroup_of_no_gang_is_a_warning(self) -> None:
        annotations = {names.SUBGROUP: "a", names.SUBGROUP_TOPOLOGY: "required:rack"}
        _, verdict = admitted(pod(annotations=annotations), facts())
        assert verdict.allowed
        assert "has no effect on a pod that is in no gang" in verdict.warnings[0]


class TestControllerAnnotations:
    """They decide which pods are evicted, and for which devices are held."""

    FORGED: ClassVar[dict[str, str]] = {
        names.RELEASED_AT: "2099-01-01T00:00:00Z",
        names.EVICT_AT: "2099-01-01T00:00:00Z",
    }

    def test_a_pod_that_still_carries_them_is_denied(self) -> None:
        body = pod(annotations=self.FORGED, schedulingGates=[GATE])
        verdict = dispatch.validate(review(body), facts())
        assert not verdict.allowed
        assert "fairlead.dev/released-at]: only the controller writes this; remove it" in verdict.message


def updated(key: str, before: str | None, after: str | None, known: Facts) -> Verdict:
    """The verdict on an update of a stored pod's annotation."""
    stored, _ = admitted(pod(), known)
    old, new = copy.deepcopy(stored), copy.deepcopy(stored)
    for version, value in ((old, before), (new, after)):
        if value is not None:
            version["metadata"].setdefault("annotations", {})[key] = value
    return dispatch.validate(review(new, operation="UPDATE", old=old), known)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [(None, "true", False), ("false", "true", False), ("true", "true", True), ("true", None, True), (None, "no", True)],
)
def test_a_policy_on_idle_pods_judges_what_is_added_to_a_pod_that_exists(
    before: str | None, after: str | None, allowed: bool
) -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "no-idle"}, "spec": {"keepIdle": "Reject", "mode": "Enforce"}})
    verdict = updated(names.KEEP_IDLE, before, after, facts(policies=(policy,)))
    assert verdict.allowed == allowed
    assert allowed or "Pod ml/train-0: TenancyPolicy no-idle (keepIdle): metadata.annotations" in verdict.message
