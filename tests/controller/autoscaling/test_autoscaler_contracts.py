"""What autoscalers take for demand, written out from their sources, on the pods that Fairlead shows and makes.

Each predicate is a table of rules as the source has them; `broken` applies them to a pod as JSON. Sources:
    cluster-autoscaler  `tests.support.autoscaler`, which runs beside a sandbox by them in tests/field/pools
    Karpenter           in August 2026: kubernetes-sigs/karpenter pkg/utils/pod/scheduling.go (IsProvisionable), pkg/operator/options/options.go:139
                        (--ignore-dra-requests, true by default)
"""

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.flavor import FlavorAutoscaling
from fairlead.controller.autoscaling import shapes, visible
from fairlead.controller.book.book import Book
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, PodClaim, Stage, tried
from fairlead.engine.types.plan import NodeDemand
from fairlead.kube import core, resource
from tests.support.autoscaler import CLUSTER_AUTOSCALER, Json, Rule, broken, scheduled

DEMAND = NodeDemand(
    namespace="ml", name="train", uid="u", queue="research", mode="Visible", flavor="h100", amounts=(("h100", 8),), state="Asked"
)  # fmt: skip


def owned_by(pod: Json, api_version: str, kind: str) -> bool:
    return any(
        (each["apiVersion"], each["kind"]) == (api_version, kind) for each in pod["metadata"].get("ownerReferences", [])
    )


KARPENTER: list[Rule] = [
    ("FailedToSchedule", lambda pod: scheduled(pod).get("reason") == "Unschedulable"),
    ("not IsScheduled", lambda pod: not pod["spec"].get("nodeName")),
    ("not IsPreempting", lambda pod: not pod["status"].get("nominatedNodeName")),
    ("not IsOwnedByDaemonSet", lambda pod: not owned_by(pod, "apps/v1", "DaemonSet")),
    ("not IsOwnedByNode", lambda pod: not owned_by(pod, "v1", "Node")),
]
AUTOSCALERS = {"cluster-autoscaler": CLUSTER_AUTOSCALER, "Karpenter": KARPENTER}


def unscheduled(reason: str, message: str) -> Json:
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


REFUSED = unscheduled("Unschedulable", "0/1 nodes are available")


def gated_pod(name: str = "train-0") -> Json:
    """As the apiserver has it: with the condition that it gives a pod with a gate."""
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": {
            "schedulingGates": [{"name": names.ADMISSION_GATE}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "nodeSelector": {"pool": "gpu"},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
        "status": {"phase": "Pending", "conditions": [unscheduled("SchedulingGated", visible.GATED_MESSAGE)]},
    }


def with_condition(pod: Json, condition: Json) -> Json:
    others = [each for each in pod["status"]["conditions"] if each["type"] != condition["type"]]
    return {**pod, "status": {**pod["status"], "conditions": [*others, condition]}}


def shown_pod() -> Json:
    return with_condition(gated_pod(), visible.shown_condition(gang(gated_pod()), DEMAND, 0.0))


def gang(*pods: Json) -> Gang:
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": 8}}
    spec = msgspec.convert({"devices": {"requests": [request]}}, resource.ResourceClaimSpec)
    members = []
    for each in pods:
        claim = PodClaim(name="gpu", key=each["metadata"]["uid"], spec=spec)
        members.append(Member(pod=msgspec.convert(each, core.Pod), stage=Stage.GATED, claims=(claim,)))
    return Gang(id=("ml", "train"), size=len(pods), members=tuple(members))


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_a_gated_pod_is_seen_by_no_autoscaler_before_it_is_shown_nor_after_it_is_hidden(autoscaler: str):
    rules = AUTOSCALERS[autoscaler]
    assert broken(rules, gated_pod()), "its reason is SchedulingGated"
    shown = shown_pod()
    assert broken(rules, shown) == []
    hidden = with_condition(shown, visible.hidden_condition(0.0))
    assert broken(rules, hidden)
    assert scheduled(hidden) | {"lastTransitionTime": ""} == scheduled(gated_pod()) | {"lastTransitionTime": ""}


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_a_nominated_pod_is_passed_over_which_is_why_none_that_is_shown_is_nominated(autoscaler: str):
    """`commit.nominated_nodes`."""
    shown = shown_pod()
    shown["status"]["nominatedNodeName"] = "n0"
    assert broken(AUTOSCALERS[autoscaler], shown)


def test_what_is_shown_is_hidden_again_and_never_taken_for_kube_schedulers_word():
    shown = shown_pod()
    assert visible.to_show(gang(gated_pod()))
    assert not visible.to_hide(gang(gated_pod()))
    assert not visible.to_show(gang(shown))
    assert visible.to_hide(gang(shown))
    assert not tried(msgspec.convert(shown, core.Pod)), "kube-scheduler has not tried it"
    own_word = msgspec.convert(with_condition(gated_pod(), REFUSED), core.Pod)
    assert tried(own_word)
    assert not visible.shown(own_word)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"schedulingGates": []}}, "it was released"),
        ({"spec": {"nodeName": "n"}}, "it is bound"),
        ({"status": {"phase": "Failed"}}, "it has ended"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "it is deleted"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_pod_that_does_not_wait_at_the_gate_is_left_alone(change: Json, why: str):
    pod = gated_pod()
    for part, fields in change.items():
        pod[part] |= fields
    assert not visible.may_be_shown(msgspec.convert(pod, core.Pod)), why


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_a_placeholder_that_kube_scheduler_could_not_place_is_seen_and_asks_for_no_claim(autoscaler: str):
    scaling = FlavorAutoscaling(mode="Placeholder", extended_resource="nvidia.com/gpu", node_selector={"type": "p5"})
    made = shapes.wanted(gang(gated_pod("a"), gated_pod("b")), scaling, namespace=names.NAMESPACE)
    assert len({each["metadata"]["name"] for each in made}) == 2
    for each in made:
        spec = {**each["spec"], "priority": -10}
        pod = {**each, "spec": spec, "status": {"phase": "Pending", "conditions": [REFUSED]}}
        assert broken(AUTOSCALERS[autoscaler], pod) == []
        assert "resourceClaims" not in pod["spec"]
        assert pod["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "4", "memory": "1073741824", "nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"},
        }  # fmt: skip
        assert pod["spec"]["nodeSelector"] == {"pool": "gpu", "type": "p5"}
        assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        converted = msgspec.convert(pod, core.Pod)
        assert shapes.is_placeholder(converted)
    usual = msgspec.convert({**made[0], "spec": {**made[0]["spec"], "priority": 0}}, core.Pod)
    assert not shapes.is_placeholder(usual), "the label alone frees no room"


def test_a_pod_is_shown_a_few_times_and_not_for_ever():
    made = gang(gated_pod())
    state = Book()[made.id]
    pod = made.gated[0].pod
    for _ in range(visible.REWRITES_MAX):
        assert visible.may_be_shown_again(state, pod)
        visible.note_shown(state, pod)
    assert not visible.may_be_shown_again(state, pod)
    state.rewrites = None
    assert visible.may_be_shown_again(state, pod)
