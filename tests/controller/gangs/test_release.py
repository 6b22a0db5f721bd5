"""The release patch, by the apiserver's rules for gated pods. Applied by the sandbox's own JSON patch."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.gangs import release
from fairlead.kube.core import Pod
from fairlead.sandbox.apiserver.patches import jsonpatch

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


def pod(affinity=None, gates=(names.ADMISSION_GATE,)):
    return {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u", "resourceVersion": "7"},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]} | ({"affinity": affinity} if affinity else {}),
    }


def released(raw):
    patch = release.release_patch(msgspec.convert(raw, Pod), "n1")
    return jsonpatch.apply(raw, patch)


def terms(raw):
    return raw["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def expression(value):
    return {"key": "zone", "operator": "In", "values": [value]}


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {"podAffinity": {}},
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    ],
)
def test_a_pod_without_required_terms_gets_one(affinity):
    after = released(pod(affinity))
    assert terms(after) == [{"matchFields": [PIN]}]
    assert after["spec"]["schedulingGates"] == []
    for kept in affinity or {}:
        assert kept in after["spec"]["affinity"]


def test_every_term_is_pinned_an_empty_one_stays_empty_and_none_is_added():
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
    before = [
        {"matchExpressions": [expression("a")]},
        {},
        {"matchFields": [other]},
        {"matchExpressions": [expression("b")], "matchFields": [other]},
    ]
    after = released(pod({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": before}}}))
    assert terms(after) == [
        {"matchExpressions": [expression("a")], "matchFields": [PIN]},
        {},
        {"matchFields": [other, PIN]},
        {"matchExpressions": [expression("b")], "matchFields": [other, PIN]},
    ]
    assert release.pinned_node(msgspec.convert(after, Pod)) == "n1"


def test_other_gates_stay():
    after = released(pod(gates=("a.example/x", names.ADMISSION_GATE, "b.example/y")))
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == ["a.example/x", "b.example/y"]


def test_a_pod_that_changed_since_it_was_read_is_not_patched():
    patch = release.release_patch(msgspec.convert(pod(), Pod), "n1")
    changed = pod()
    changed["metadata"]["resourceVersion"] = "8"
    with pytest.raises(Exception, match="resourceVersion"):
        jsonpatch.apply(changed, patch)


def test_a_pod_without_the_gate_was_released_before():
    with pytest.raises(release.NotGatedError, match="ml/p"):
        release.release_patch(msgspec.convert(pod(gates=()), Pod), "n1")


def test_only_a_pod_pinned_by_every_term_is_pinned():
    pinned = {"matchFields": [PIN]}
    free = {"matchExpressions": [expression("a")]}

    def node(*given):
        return release.pinned_node(
            msgspec.convert(pod({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(given)}}}), Pod)
        )

    assert node(pinned) == "n1"
    assert node(pinned, {}) == "n1"
    assert node(pinned, free) is None
    assert release.pinned_node(msgspec.convert(pod(), Pod)) is None
