"""Claims that the webhook names: which entries, from which sources, and what is judged of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.offline import judge, world_of
from fairlead.webhook.review.facts import Facts, needs
from fairlead.webhook.review.pod_claims import legacy_claim_spec
from tests.support.webhook import admitted, claim_spec, facts, patched, review

Json = dict[str, Any]
Change = Callable[[Json], object]
KEY = b"of all replicas"
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}


def pod(*entries: Json, owner: Json | None = JOB, limits: Json | None = None, **spec: Any) -> Json:
    """A pod of Job ml/train; without entries, one on template h100, or with legacy limits."""
    entries = entries or (() if limits else ({"name": "gpu", "resourceClaimTemplateName": "h100"},))
    container: Json = {"name": "worker", "image": "busybox", "resources": {"limits": dict(limits or {})}}
    metadata: Json = {"generateName": "train-", "namespace": "ml", "annotations": {}, "labels": {}}
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    body = {"containers": [container], "resourceClaims": [dict(entry) for entry in entries]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def known(**changes: Any) -> Facts:
    return facts(signing_key=KEY, **changes)


def sources(stored: Json) -> dict[str, ClaimSource]:
    return claim_sources.read(stored["metadata"].get("annotations") or {})


def entries(stored: Json) -> dict[str, Json]:
    return {entry["name"]: entry for entry in stored["spec"]["resourceClaims"]}


def named(body: Json | None = None, given: Facts | None = None) -> Json:
    stored, verdict = admitted(body or pod(), given or known())
    assert verdict.allowed, verdict.message
    assert verdict.warnings == ()
    return stored


class TestRewriting:
    def test_a_template_that_is_named_like_a_legacy_request_is_one_unless_it_says_something_else(self) -> None:
        body = pod({"name": "gpu", "resourceClaimTemplateName": "fairlead-gpu-2"})
        key = ("ml", "fairlead-gpu-2")
        ours, other = legacy_claim_spec("fairlead-gpu-2", names.DRIVER), claim_spec(count=1)
        assert sources(named(body))["gpu"].is_legacy
        assert sources(named(body, known(templates={key: ours})))["gpu"].is_legacy
        assert sources(named(body, known(templates={key: other})))["gpu"].uid == "uid-fairlead-gpu-2"

    def test_only_what_is_surely_ours_and_known_is_rewritten(self) -> None:
        body = pod(
            {"name": "a", "resourceClaimTemplateName": "h100"},
            {"name": "b", "resourceClaimTemplateName": "nic"},
            {"name": "c", "resourceClaimTemplateName": "later"},
            {"name": "d", "resourceClaimName": "shared"},
            {"name": "e", "resourceClaimTemplateName": "unknown-class"},
            limits={names.LEGACY_GPU: 1},
        )
        templates = {
            ("ml", "h100"): claim_spec(),
            ("ml", "nic"): claim_spec("nic.example.com"),
            ("ml", "unknown-class"): claim_spec("later.example.com"),
        }
        stored, verdict = admitted(body, known(templates=templates, claims={("ml", "shared"): claim_spec()}))
        assert verdict.allowed
        assert set(sources(stored)) == {"a", "fairlead-gpu-0"}
        assert [entry for entry in stored["spec"]["resourceClaims"] if entry["name"] in "bcde"] == [
            entry for entry in body["spec"]["resourceClaims"] if entry["name"] in "bcde"
        ]

    def test_a_pod_made_again_under_its_name_gets_other_claims(self) -> None:
        body = pod(owner=JOB | {"kind": "StatefulSet"})
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key != "generateName"}
        body["metadata"]["name"] = "web-0"
        claims = set()
        for uid in ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"):
            verdict = dispatch.mutate(replace(review(body), uid=uid), known())
            claims.add(sources(patched(body, verdict))["gpu"].claim)
        assert len(claims) == 2
        assert all(claim.startswith("web-0-gpu-") for claim in claims)

    def test_more_entries_than_one_annotation_holds_stay_as_they_are(self) -> None:
        many = [{"name": f"gpu-{at}", "resourceClaimTemplateName": "h100"} for at in range(1_000)]
        stored = named(pod(*many))
        assert sources(stored) == {}
        assert stored["spec"]["resourceClaims"] == many


class TestWay:
    def test_check_says_which_way_and_why(self) -> None:
        template = {"metadata": {"name": "h100", "namespace": "ml"}, "kind": "ResourceClaimTemplate"}
        template["spec"] = {
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": names.GPU_CLASS}}]}}
        }
        job = {
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "ml"},
            "spec": {"template": {"spec": pod()["spec"]}},
        }
        kueue = job | {"metadata": {"name": "k", "namespace": "ml", "labels": {names.KUEUE_QUEUE: "q"}}}
        bare = pod(owner=None)
        plain = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}, "spec": {"containers": []}}
        world = world_of([template])
        said = {
            result.review.subject: result.claims
            for document in (job, kueue, bare, plain)
            for result in judge(document, world)
        }
        assert said == {
            "Job ml/j": "",
            "Job ml/k": "",
            "Pod ml/j-0-*": "named: Job j owns the pod",
            "Pod ml/k-0-*": "generated: metadata.labels[kueue.x-k8s.io/queue-name]: Kueue may manage the pod",
            "Pod ml/train-*": "generated: no controller owns the pod",
            "Pod ml/p": "",
        }
        (waiting,) = judge(bare | {"metadata": bare["metadata"] | {"ownerReferences": [JOB]}}, world_of([]))
        assert waiting.claims == "generated: their template or class does not exist yet"


def tampered(change: Callable[[Json], object]) -> Json:
    """A rewritten pod whose record was changed."""
    stored = named()
    record = json.loads(stored["metadata"]["annotations"][names.CLAIM_SOURCES])
    change(record)
    stored["metadata"]["annotations"][names.CLAIM_SOURCES] = json.dumps(record)
    return stored


def other_owner(body: Json) -> None:
    body["metadata"]["ownerReferences"][0]["uid"] = "another"


def other_namespace(body: Json) -> None:
    body["metadata"]["namespace"] = "prod"


FORGED: list[tuple[str, Callable[[], Json]]] = [
    ("another template", lambda: tampered(lambda record: record["claims"]["gpu"].update(template="big"))),
    ("another UID", lambda: tampered(lambda record: record["claims"]["gpu"].update(uid="big"))),
    ("another claim", lambda: tampered(lambda record: record["claims"]["gpu"].update(claim="theirs"))),
    ("one entry more", lambda: tampered(lambda record: record["claims"].update(x=record["claims"]["gpu"]))),
    ("no signature", lambda: tampered(lambda record: record.update(hmac=""))),
    ("not readable", lambda: tampered(lambda record: record.pop("claims"))),
]  # fmt: skip


class TestProvenance:
    @pytest.mark.parametrize(("what", "make"), FORGED, ids=[row[0] for row in FORGED])
    def test_a_forged_record_is_refused(self, what: str, make: Callable[[], Json]) -> None:
        for step in (dispatch.mutate, dispatch.validate):
            verdict = step(review(make()), known())
            assert (verdict.allowed, verdict.code, verdict.cause) == (False, 422, "annotations")
            assert "metadata.annotations[fairlead.dev/claim-sources]" in verdict.message
            assert "remove it from the pod template, and write resourceClaimTemplateName" in verdict.message

    @pytest.mark.parametrize("change", [other_owner, other_namespace])
    def test_a_record_of_another_owner_or_namespace_is_refused(self, change: Change) -> None:
        body = named()
        change(body)
        for step in (dispatch.mutate, dispatch.validate):
            assert "was not written by the webhook for a pod of this owner" in step(review(body), known()).message

    def test_a_genuine_record_covers_only_the_claims_that_it_names(self) -> None:
        body = named()
        body["spec"]["resourceClaims"][0]["resourceClaimName"] = "of-another-pod"
        for step in (dispatch.mutate, dispatch.validate):
            assert "'gpu' must name claim 'train-gpu-" in step(review(body), known()).message

    def test_a_second_pass_after_another_webhooks_change_names_nothing_more(self) -> None:
        """A sidecar that was added meanwhile keeps its template: its claim is made the older way."""
        body = named()
        body["spec"]["resourceClaims"].append({"name": "more", "resourceClaimTemplateName": "h100"})
        assert dispatch.mutate(review(body), known()).patch == ()
        assert dispatch.validate(review(body), known()).allowed

    def test_the_key_before_the_last_rotation_is_still_known(self) -> None:
        body = named()
        rotated = facts(signing_key=b"new", former_signing_key=KEY)
        assert dispatch.mutate(review(body), rotated).patch == ()
        assert dispatch.validate(review(body), rotated).allowed
        assert not dispatch.mutate(review(body), facts(signing_key=b"new")).allowed

    def test_a_record_that_names_a_claim_hides_it_from_no_other_entry(self) -> None:
        """Else a claim of ours would pass for one that does not exist, and the pod for one that may be another driver's."""
        value = '{"claims":{"x":{"claim":"shared","template":"h100","uid":"u"}},"hmac":""}'
        body = pod({"name": "gpu", "resourceClaimName": "shared"}, owner=None, nodeName="n1")
        body["metadata"]["annotations"] = {names.CLAIM_SOURCES: value}
        assert needs(review(body)).claims == frozenset({("ml", "shared")})
        verdict = dispatch.mutate(review(body), known(claims={("ml", "shared"): claim_spec()}))
        assert (verdict.allowed, verdict.cause) == (False, "placed")

    @pytest.mark.parametrize("entries", [[], [{"name": "gpu", "resourceClaimTemplateName": "nic"}]])
    def test_a_record_on_a_pod_that_asks_for_nothing_of_ours_is_refused_or_taken_off(self, entries: list[Json]) -> None:
        body = named() | {"spec": {"containers": [], "resourceClaims": entries}}
        for step in (dispatch.mutate, dispatch.validate):
            assert "'gpu' must name claim 'train-gpu-" in step(review(body), known()).message
        body["metadata"].pop("ownerReferences")
        stored, verdict = admitted(body, known())
        assert (verdict.allowed, verdict.cause) == (True, "unmanaged")
        assert stored["metadata"]["annotations"] == {}
        assert not dispatch.validate(review(body), known()).allowed


def policy(**spec: Any) -> TenancyPolicy:
    return TenancyPolicy.read({"metadata": {"name": "p"}, "spec": spec})


class TestJudging:
    """A named claim does not exist yet; what it will be made from does."""

    @pytest.mark.parametrize("body", [pod(), pod(limits={names.LEGACY_GPU: 1})], ids=["template", "limit"])
    def test_a_policy_judges_the_source_whenever_the_pod_is_seen(self, body: Json) -> None:
        stored = named(body)
        strict = known(policies=(policy(wholeGpus="Forbid"),))
        for object_, step in ((body, dispatch.mutate), (stored, dispatch.mutate), (stored, dispatch.validate)):
            verdict = step(review(object_), strict)
            assert (verdict.allowed, verdict.cause) == (False, "policy")
            assert "may give whole GPUs" in verdict.message

    def test_a_named_claim_is_managed_though_it_does_not_exist(self) -> None:
        body = named()
        body["spec"]["schedulingGates"] = []
        verdict = dispatch.validate(review(body), known())
        assert (verdict.cause, verdict.code) == ("gate", 429)
        body["spec"]["nodeName"] = "n1"
        assert "spec.nodeName: 'n1'" in dispatch.validate(review(body), known()).message

    @pytest.mark.parametrize("templates", [{}, {("ml", "h100"): claim_spec("nic.example.com")}], ids=["gone", "anew"])
    def test_a_template_that_was_recreated_does_not_change_what_was_judged(self, templates: Json) -> None:
        """It has another UID: the pod stays managed, and a warning says what the controller will say."""
        body, now = named(), known(templates=templates)
        if templates:
            (key,) = now.templates
            now = replace(now, templates={key: replace(now.templates[key], uid="uid-2")})
        verdict = dispatch.mutate(review(body), now)
        assert (verdict.allowed, verdict.cause, verdict.patch) == (True, "gated", ())
        which = "the one of that name now is uid-2" if templates else "it is gone"
        gone = "spec.resourceClaims[0]: ResourceClaimTemplate ml/h100 with UID uid-h100 does not exist any more"
        assert verdict.warnings == (f"{gone}: {which}; delete the pod, so that its owner recreates it",)
        ungated = body | {"spec": body["spec"] | {"schedulingGates": []}}
        assert dispatch.validate(review(ungated), now).cause == "gate"
