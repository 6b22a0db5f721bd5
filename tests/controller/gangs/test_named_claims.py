"""Claims that the webhook named in the pod's spec: only the controller makes them, and never from something else.

The gang protocol with them is in test_gang_protocol, crashes in test_kill; here the ways in which source and claim can differ.
"""

import dataclasses
from typing import Any

import msgspec
import pytest

from fairlead.api import claim_sources, legacy, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.admission.requests import blocking_problem
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.kube import core, resource, resources
from tests.controller.conftest import Bench
from tests.controller.gang_views import Objects, claim, pod, step, template, view

VALIDATING_POLICIES = dataclasses.replace(
    resources.VALIDATING_POLICY_BINDINGS, plural="validatingadmissionpolicies", kind="ValidatingAdmissionPolicy"
)
SOURCE = ClaimSource(claim="p-gpu-x", template="t", uid="uid-t")


def named(name: str = "p", source: ClaimSource = SOURCE, value: str | None = None, **more: Any) -> core.Pod:
    """A pod whose entry `gpu` names the source's claim."""
    recorded = value or claim_sources.annotation({"gpu": source}, namespace="ml", owner_uid="", key=b"")
    made = pod(name, template=None, **more)
    annotations = {**made.metadata.annotations, names.CLAIM_SOURCES: recorded}
    result: core.Pod = msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, annotations=annotations),
        spec=msgspec.structs.replace(
            made.spec, resource_claims=(core.PodResourceClaim(name="gpu", resource_claim_name=source.claim),)
        ),
    )
    return result


def known_template(uid: str = "uid-t") -> dict[str, resource.ResourceClaimTemplate]:
    found = template()
    return {"t": msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, uid=uid))}


def problem(gang: Gang) -> str:
    found = blocking_problem(gang)
    return found.message if found else ""


def test_a_claim_that_is_not_made_yet_is_asked_for_as_its_template_says():
    gang = view(named(), objects=Objects([], known_template()))
    assert problem(gang) == ""
    ((asked,),) = (member.claims for member in gang.gated)
    assert asked.spec == template().spec.spec
    assert gang.gated[0].unseen_templates == ()
    assert (asked.claim, asked.made, gang.gated[0].admission_begun) == (None, False, False)


def test_a_legacy_request_needs_no_template():
    source = ClaimSource(claim="p-gpu-x", template=legacy.template_name(names.LEGACY_GPU, 3))
    objects = Objects([], {})
    objects.classes[names.DRIVER] = objects.classes["gpu"]
    gang = view(named(source=source), objects=objects)
    assert problem(gang) == ""
    ((asked,),) = (member.claims for member in gang.gated)
    assert asked.spec.devices.requests[0].exactly.count == 3
    assert gang.gated[0].legacy_templates == ()


def test_a_template_that_is_gone_or_another_is_a_reason_with_its_cure():
    without = view(named(), objects=Objects([], {}))
    gone = problem(without)
    assert without.gated[0].unseen_templates == ("t",)  # the watch may only be behind: it is read
    assert gone == (
        "pod p, spec.resourceClaims[gpu]: ResourceClaimTemplate ml/t was deleted after the pod was created; "
        "delete the pod, so that its owner makes another"
    )
    again = problem(view(named(), objects=Objects([], known_template("another"))))
    assert "ResourceClaimTemplate ml/t was deleted and created again after the pod was created" in again


@pytest.mark.parametrize(
    "present",
    [
        claim("p-gpu-x", None),
        claim("p-gpu-x", "other"),
        claim("p-gpu-x", "p", annotations={}),
        msgspec.structs.replace(
            claim("p-gpu-x", "p"), spec=msgspec.convert({"devices": {"requests": []}}, resource.ResourceClaimSpec)
        ),
    ],
    ids=["no owner", "another's", "another entry's", "another spec"],
)
def test_a_claim_of_that_name_that_another_made_is_a_reason_and_is_never_used(present: resource.ResourceClaim):
    gang = view(named(), objects=Objects([present], known_template()))
    assert "ResourceClaim ml/p-gpu-x" in problem(gang)
    assert "delete the pod, so that its owner makes another" in problem(gang)
    assert gang.gated[0].claims == ()
    assert step(gang) is None


def test_a_claim_in_another_namespace_is_not_the_pods():
    elsewhere = claim("p-gpu-x", "p")
    elsewhere = msgspec.structs.replace(
        elsewhere, metadata=msgspec.structs.replace(elsewhere.metadata, namespace="red")
    )
    assert "was not made for this pod" in problem(view(named(), objects=Objects([elsewhere], known_template())))


@pytest.mark.parametrize("value", ["{", '{"claims":{"gpu":{}},"hmac":""}'])
def test_an_annotation_that_cannot_be_read_is_a_reason(value: str):
    assert "claim-sources" in problem(view(named(value=value), objects=Objects([], known_template())))


def test_a_source_for_a_claim_that_the_pod_does_not_name_counts_for_nothing():
    stranger = claim_sources.annotation({"gpu": ClaimSource(claim="z", template="t", uid="u")}, namespace="ml", owner_uid="", key=b"")  # fmt: skip
    assert problem(view(named(value=stranger), objects=Objects([], known_template()))) == (
        "ResourceClaim ml/p-gpu-x, which pod p uses, does not exist; create it"
    )


def test_a_claim_that_was_made_but_not_allocated_is_undone():
    """A new leader finds it: the claim must not count against a quota for a gang that may not start."""
    gang = view(named(), objects=Objects([claim("p-gpu-x", "p", ours=True)], known_template()))
    found = step(gang)
    assert isinstance(found, recovery.Undo)
    assert found.members == gang.gated


def test_a_claim_that_was_made_and_allocated_is_completed():
    held = claim("p-gpu-x", "p", node="n1", reserved=["p"], ours=True)
    gang = view(named(), objects=Objects([held], known_template()))
    assert isinstance(step(gang), recovery.Complete)


def test_a_template_that_is_deleted_when_the_pod_runs_changes_nothing():
    held = claim("p-gpu-x", "p", node="n1", reserved=["p"], ours=True)
    gang = view(named(gated=False, node="n1", phase="Running"), objects=Objects([held], {}))
    assert problem(gang) == ""
    assert step(gang) is None
    assert len(gang.running) == 1


# -- on the sandbox ------------------------------------------------------------------------------------------------


@pytest.fixture(name="named")
def claims_are_named() -> bool:
    return True


async def test_no_claim_exists_while_a_gang_waits_and_none_but_its_own_when_it_runs(bench: Bench):
    await bench.template("eight", 8)
    async with bench.controller():
        first = await bench.gang("first", 2, template="eight")
        await bench.until(lambda: bench.running(first), "the first gang runs")
        second = await bench.gang("second", 2, template="eight")
        await bench.until(lambda: bench.status("second").get("reason") == "DevicesInUse", "the second waits")
        assert len(bench.claims.all()) == 2
        await bench.delete(first)
        await bench.until(lambda: bench.running(second), "the second gang runs")
        await bench.event(second[1], "Admitted: released to node")
        await bench.until(lambda: len(bench.claims.all()) == 2, "the first gang's claims are deleted")
        found = {each.metadata.name for each in bench.claims.all()}
        assert found == {
            use.resource_claim_name for name in second if (each := bench.get(name)) for use in each.spec.resource_claims
        }
        assert all(each.status.resource_claim_statuses == () for name in second if (each := bench.get(name)))


async def test_a_claim_made_beforehand_keeps_the_gang_waiting_until_the_pod_is_recreated(bench: Bench):
    await bench.template("one")
    first = await bench.pod("victim-0", template="one", gang="victim", size=2)
    stolen = first.spec.resource_claims[0].resource_claim_name or ""
    await bench.claim(stolen, 8)
    async with bench.controller():
        await bench.pod("victim-1", template="one", gang="victim", size=2)
        said = "was not made for this pod"
        await bench.until(lambda: said in bench.status("victim").get("message", ""), "the reason is told")
        assert bench.allocated() == []
        assert [each.metadata.name for each in bench.claims.all()] == [stolen]
        await bench.delete(["victim-0"])
        await bench.pod("victim-2", template="one", gang="victim", size=2)
        await bench.until(lambda: bench.running(["victim-1", "victim-2"]), "the gang runs")


async def test_a_claim_that_cannot_be_made_leaves_none_of_the_gang(bench: Bench):
    """The apiserver refuses the second claim: as by a quota, a policy or another webhook."""
    await bench.template("one")
    pods = await bench.gang("refused", 3, template="one")
    blocked = bench.get(pods[1])
    assert blocked is not None
    policy = _refusing(blocked.spec.resource_claims[0].resource_claim_name or "")
    for kind, body in policy:
        await bench.client.create(kind, body)
    async with bench.controller():
        said = "not today"
        await bench.until(lambda: said in bench.status("refused").get("message", ""), "the refusal is the reason")
        await bench.until(lambda: bench.claims.all() == [], "no claim of the others is left")
        assert bench.gated(pods)
        for kind, body in policy:
            await bench.client.delete(kind, body["metadata"]["name"])
        await bench.until(lambda: bench.running(pods), "the gang runs", 60)


def _refusing(claim_name: str) -> list[tuple[Any, dict[str, Any]]]:
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["resourceclaims"]}  # fmt: skip
    validation = {"expression": f"object.metadata.name != '{claim_name}'", "message": "not today"}
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    return [
        (VALIDATING_POLICIES, {"metadata": {"name": "refuse"}, "spec": spec}),
        (
            resources.VALIDATING_POLICY_BINDINGS,
            {"metadata": {"name": "refuse"}, "spec": {"policyName": "refuse", "validationActions": ["Deny"]}},
        ),
    ]
