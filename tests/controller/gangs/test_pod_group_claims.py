"""A claim that is reserved for a native PodGroup, as Kubernetes 1.36 makes it behind DRAWorkloadResourceClaims."""

from typing import Any

import msgspec
import pytest

from fairlead.controller.gangs.admission import recovery, requests
from fairlead.controller.gangs.claims.allocations import held_claims
from fairlead.controller.gangs.membership.members import GroupClaim, GroupTerms
from fairlead.controller.gangs.pods import is_member
from fairlead.kube import core, resource
from tests.controller.gang_views import Objects, claim, pod, problem_of, view

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "uid-group"}
TERMS = {("scheduling.k8s.io", "train"): GroupTerms(size=2)}


def of_group(made: core.Pod, name: str = "train") -> core.Pod:
    group = core.PodSchedulingGroup(pod_group_name=name)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, scheduling_group=group))


def shared(*, node: str | None = None, **consumer: Any) -> resource.ResourceClaim:
    """The one claim of all the group's pods, as the claim controller makes it for a template."""
    made = claim("c", None, node=node)
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "train", "uid": "uid-group"}
    body = msgspec.to_builtins(made)
    body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if node:
        body["status"]["reservedFor"] = [GROUP | consumer]
    return msgspec.convert(body, resource.ResourceClaim)


def test_all_pods_of_the_group_share_the_claim_that_was_made_for_it():
    gang = view(*(of_group(pod(n, claim="c")) for n in ("a", "b")), objects=Objects([shared()], groups=TERMS))
    assert requests.blocking_problem(gang) is None
    assert {each.claims[0].key for each in gang.members} == {"uid-c"}
    assert {each.claims[0].template for each in gang.members} == {None}, "none is created for a pod"


def test_what_is_reserved_for_the_group_is_reserved_for_its_pods():
    pods = [of_group(pod(n, claim="c", gated=False, node="n1")) for n in ("a", "b")]
    objects = Objects([shared(node="n1")], groups=TERMS)
    assert all(is_member(each, objects) for each in pods)
    gang = view(*pods, objects=objects)
    assert list(held_claims(gang.members)) == ["uid-c"]
    assert recovery.reserved_on(gang.members[0], lambda _: True) == "n1"


def test_a_gated_pod_of_the_group_was_not_admitted_by_its_groups_reservation():
    gang = view(
        of_group(pod("a", claim="c", gated=False, node="n1")),
        of_group(pod("b", claim="c")),
        objects=Objects([shared(node="n1")], groups=TERMS),
    )
    assert [each.admission_begun for each in gang.gated] == [False]
    assert [each.pod.metadata.name for each in requests.members_to_place(gang)] == ["b"]


@pytest.mark.parametrize(
    "consumer",
    [{"name": "other"}, {"resource": "pods"}, {"apiGroup": "scheduling.volcano.sh"}, {"apiGroup": ""}],
)
def test_another_consumer_is_not_the_pods_group(consumer):
    made = of_group(pod("a", claim="c", gated=False, node="n1"))
    assert not is_member(made, Objects([shared(node="n1", **consumer)], groups=TERMS))


def test_a_pod_that_has_ended_no_longer_holds_what_is_its_groups():
    made = of_group(pod("a", claim="c", gated=False, node="n1", phase="Succeeded"))
    assert not is_member(made, Objects([shared(node="n1")], groups=TERMS))


def test_a_claim_that_is_not_made_yet_is_awaited_and_none_is_made_for_a_pod():
    listed = GroupTerms(size=2, claims=(GroupClaim(name="gpu", template="t"),))
    pods = [of_group(pod(n)) for n in ("a", "b")]
    gang = view(*pods, objects=Objects(groups={("scheduling.k8s.io", "train"): listed}))
    problem = problem_of(gang)
    assert problem.startswith("the claim of PodGroup ml/train for its entry gpu is not made yet")
    assert "DRAWorkloadResourceClaims" in problem
    other = GroupTerms(size=2, claims=(GroupClaim(name="gpu", template="other"),))
    gang = view(*pods, objects=Objects(groups={("scheduling.k8s.io", "train"): other}))
    assert requests.blocking_problem(gang) is None, "another template is each pod's own claim"


def test_the_groups_status_names_the_claim_before_the_pods_do():
    listed = GroupTerms(size=2, claims=(GroupClaim(name="gpu", template="t", claim="c"),))
    objects = Objects([shared()], groups={("scheduling.k8s.io", "train"): listed})
    gang = view(*(of_group(pod(n)) for n in ("a", "b")), objects=objects)
    assert requests.blocking_problem(gang) is None
    assert {each.claims[0].key for each in gang.members} == {"uid-c"}


@pytest.mark.parametrize("count", [256, 257])
def test_a_claim_that_too_many_pods_share_is_refused_with_what_to_do(count):
    group = {("scheduling.k8s.io", "train"): GroupTerms(size=count)}
    gang = view(*(of_group(pod(f"p{n}", claim="c")) for n in range(count)), objects=Objects([shared()], groups=group))
    problem = requests.blocking_problem(gang)
    if count == 256:
        assert problem is None
    else:
        assert problem is not None
        assert problem.message.startswith(
            "257 members share ResourceClaim c, and a claim is reserved for at most 256 pods"
        )
