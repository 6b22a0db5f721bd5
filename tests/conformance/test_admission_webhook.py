"""The reviews that a real apiserver sent, through our own handlers: each gets a well-formed, sensible answer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.envelope import Review, decode, encode
from fairlead.webhook.review.facts import Facts, Template, needs
from tests.support.webhook import decoded_answer, device_class, patched

Json = dict[str, Any]
FOREIGN = device_class("foreign", "device.driver == 'gpu.example.com'")
OURS = device_class("ours", f"device.driver == '{names.DRIVER}'")


class Always(dict[str, DeviceClass]):
    """Whatever class is asked for: this one."""

    def __init__(self, found: DeviceClass) -> None:
        super().__init__()
        self.found = found

    def get(self, key: str, default: Any = None) -> Any:
        return self.found

    def __contains__(self, key: object) -> bool:
        return True


KEPT: dict[str, Callable[[Json], bool]] = {
    "sent": lambda _: True,
    "mutating": lambda sent: str(sent["path"]).startswith("/mutate"),
    "foreign": lambda sent: not for_us(sent),
}
"""By the argument of a test: the reviews that it is about."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    vectors: Path = metafunc.config.getoption("--vectors")
    for argument in KEPT.keys() & set(metafunc.fixturenames):
        cases = [pytest.param(sent, id=name) for name, sent in _recorded(vectors) if KEPT[argument](sent)]
        if not cases:
            skip = pytest.mark.skip(reason=f"no admission*.jsonl.gz in {vectors}; pass --vectors DIR")
            cases = [pytest.param({}, id="absent", marks=skip)]
        metafunc.parametrize(argument, cases)


def _recorded(vectors: Path) -> Iterator[tuple[str, Json]]:
    for file in sorted(vectors.glob("admission*.jsonl.gz")) if vectors.is_dir() else ():
        with gzip.open(file, "rt") as lines:
            for line in lines:
                scenario = json.loads(line)
                for index, sent in enumerate(scenario["reviews"]):
                    yield f"admission-{scenario['scenario']}-{index}", sent


def facts_for(review: Review, found: DeviceClass) -> Facts:
    """Every class, claim and template that the review refers to exists."""
    wanted = needs(review)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}}
    spec = msgspec.convert({"devices": {"requests": [request]}}, ResourceClaimSpec)
    return Facts(
        classes=Always(found),
        templates=dict.fromkeys(wanted.templates, Template("uid", spec)),
        claims=dict.fromkeys(wanted.claims, spec),
        jobs=dict.fromkeys(wanted.jobs, 2),
    )


def judge(sent: Json, facts_of: Any) -> tuple[Review, Any, Json]:
    review = decode(json.dumps(sent["review"]).encode())
    handler = dispatch.mutate if sent["path"].startswith("/mutate") else dispatch.validate
    verdict = handler(review, facts_of(review))
    response = decoded_answer(encode(review.uid, verdict))
    assert response["uid"] == sent["review"]["request"]["uid"]
    assert isinstance(response["allowed"], bool)
    assert response["allowed"] or response["status"]["message"]
    return review, verdict, response


def left_alone(review: Review) -> Facts:
    """Every class is another driver's, and legacy requests are left to a device plugin."""
    policy = TenancyPolicy.read({"metadata": {"name": "plugin"}, "spec": {"legacyRequests": "Ignore"}})
    return msgspec.structs.replace(facts_for(review, FOREIGN), policies=(policy,))


def for_us(sent: Json) -> bool:
    """Whether the object is ours by itself, whatever its classes are: a kind of ours, a configuration for our driver."""
    request = sent["review"]["request"]
    return request["kind"]["group"] == names.API_GROUP or f'"driver": "{names.DRIVER}"' in json.dumps(
        request.get("object")
    )


def is_new_pod(review: Review) -> bool:
    return review.group_resource == "pods" and review.operation == "CREATE" and not review.subresource


def test_an_unmanaged_object_is_allowed_untouched(foreign: Json) -> None:
    review, verdict, response = judge(foreign, left_alone)
    if review.group_resource == "pods" and review.operation == "UPDATE" and not verdict.allowed:
        assert verdict.cause in {"gate", "annotations"}  # the pod has our gate, whatever it asks for
        return
    assert response | {"warnings": []} == {"uid": review.uid, "allowed": True, "warnings": []}
    # Annotations of ours that have no effect are pointed out; nothing else is said.
    assert all(warning.startswith(names.GANG) for warning in verdict.warnings)


def test_a_managed_object_gets_a_sensible_answer(sent: Json) -> None:
    review, verdict, response = judge(sent, lambda review: facts_for(review, OURS))
    assert "patch" not in response or sent["path"].startswith("/mutate")
    if not verdict.allowed:
        assert response["status"]["code"] in {403, 422, 429}
        assert response["status"]["message"].startswith(review.kind)
    if is_new_pod(review) and review.object is not None:
        asks = bool(review.object["spec"].get("resourceClaims")) or "nvidia.com/" in json.dumps(review.object["spec"])
        exempt = facts_for(review, OURS).exempt(review.namespace)
        assert (verdict.cause == "unmanaged") is (exempt or not asks)
        if sent["path"].startswith("/validate") and asks and not exempt:
            # Recorded without us: the pod came to validation without our gate, or with its limits.
            assert verdict.cause in {"gate", "legacy", "gang"} or names.ADMISSION_GATE in json.dumps(review.object)


def test_the_patch_applies_and_a_second_pass_is_a_no_op(mutating: Json) -> None:
    review, verdict, _ = judge(mutating, lambda review: facts_for(review, OURS))
    if review.object is None or not verdict.allowed:
        assert verdict.patch == ()
        return
    stored = patched(review.object, verdict)
    again = msgspec.json.decode(json.dumps(mutating["review"]).encode())
    again["request"]["object"] = stored
    second = dispatch.mutate(decode(json.dumps(again).encode()), facts_for(review, OURS))
    assert (second.allowed, second.patch) == (True, ())
    if is_new_pod(review):
        before = [gate["name"] for gate in review.object["spec"].get("schedulingGates") or []]
        after = [gate["name"] for gate in stored["spec"].get("schedulingGates") or []]
        assert after[: len(before)] == before
        assert after.count(names.ADMISSION_GATE) <= 1
