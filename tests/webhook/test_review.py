"""Any bytes are a review or an error with a status; every answer fits what the apiserver accepts."""

import json
from typing import Any

import pytest

from fairlead.webhook.review.envelope import BadReviewError, decode, encode
from fairlead.webhook.review.verdict import Verdict, allow, deny
from tests.support.webhook import decoded_answer

Json = dict[str, Any]


def envelope(**request: Any) -> bytes:
    body: Json = {
        "uid": "u1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "userInfo": {"username": "alice", "groups": ["g"]},
        "object": {"metadata": {"name": "p"}},
        "oldObject": None,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body | request}
    ).encode()


def test_a_review_is_read() -> None:
    review = decode(envelope(dryRun=True, subResource="status", name="p"))
    assert (review.uid, review.group_resource, review.operation, review.subresource) == (
        "u1",
        "pods",
        "CREATE",
        "status",
    )
    assert (review.username, review.groups, review.dry_run) == ("alice", frozenset({"g"}), True)
    assert (review.object, review.old) == ({"metadata": {"name": "p"}}, None)
    assert review.subject == "Pod ml/p"


BAD = [
    (b"", "the body is not JSON"),
    (b"{", "the body is not JSON"),
    (b"\xff\xfe", "the body is not JSON"),
    (b"[]", "expected a JSON object"),
    (b"null", "expected a JSON object"),
    (b"{}", "expected an AdmissionReview of admission.k8s.io/v1, not None None"),
    (b'{"kind": "Pod", "apiVersion": "v1"}', "expected an AdmissionReview of admission.k8s.io/v1, not v1 Pod"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "not admission.k8s.io/v1beta1"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "request.uid: is required"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": 3}', "request: expected an object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 100_000, "nested too deeply"),
    (envelope(uid=3), "request.uid: expected text"),
    (envelope(operation="PATCH"), "'PATCH' of resource 'pods' means nothing"),
    (envelope(resource={}), "means nothing"),
    (envelope(resource=[]), "request.resource: expected an object"),
    (envelope(object=None), "request.object: is required with operation CREATE"),
    (envelope(object="pod"), "request.object: expected an object"),
    (envelope(userInfo={"groups": [1]}), "request.userInfo.groups: expected a list of texts"),
]


@pytest.mark.parametrize(("body", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_no_review_is_refused_with_a_reason(body: bytes, message: str) -> None:
    with pytest.raises(BadReviewError) as refused:
        decode(body)
    assert message in str(refused.value)
    assert refused.value.status == 400


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (422, "Invalid"), (400, "BadRequest")])
def test_a_denial_has_code_reason_and_message_and_never_a_patch(code: int, reason: str) -> None:
    verdict = Verdict(allowed=False, message="no", code=code, patch=({"op": "remove", "path": "/a"},))
    assert decoded_answer(encode("u1", verdict)) == {
        "uid": "u1",
        "allowed": False,
        "status": {"status": "Failure", "message": "no", "reason": reason, "code": code},
    }


def test_a_temporary_denial_lets_clients_try_again() -> None:
    status = decoded_answer(encode("u1", deny("gate", "no", code=429)))["status"]
    assert (status["code"], status["reason"], status["details"]) == (429, "TooManyRequests", {"retryAfterSeconds": 1})


def test_warnings_are_cut_to_what_the_apiserver_shows() -> None:
    response = decoded_answer(encode("u1", allow(warnings=[f"{n} " + "x" * 300 + "\n\tend" for n in range(40)])))
    assert all(len(warning) <= 256 and "\n" not in warning for warning in response["warnings"])
    assert sum(map(len, response["warnings"])) <= 4096
    assert response["warnings"][-1].startswith("and ")
    assert response["warnings"][-1].endswith(" more")
