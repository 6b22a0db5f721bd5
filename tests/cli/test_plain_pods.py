"""Gangs of one that never waited have no Gang object: `gangs` lists them, and `explain` describes them, from their pods."""

from typing import Any

import pytest

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.kube import timestamps
from fairlead.ui.model import explanations, plain_pods

NOW = 1_800_000_000.0
SOURCES = {
    "gpu": ClaimSource(claim="train-gpu-x", template="one-gpu", uid="u"),
    "old": ClaimSource(claim="train-old-y", template="fairlead-gpu-2.product-nvidia-h100"),
}


def pod(
    name: str = "train-x", *, gated: bool = False, phase: str = "Pending", annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    recorded = claim_sources.annotation(SOURCES, namespace="ml", owner_uid="o", key=b"")
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": timestamps.seconds(NOW - 90),
            "annotations": {names.CLAIM_SOURCES: recorded} | (annotations or {}),
        },
        "spec": {"nodeName": "" if gated else "n1"} | ({"schedulingGates": [{"name": names.ADMISSION_GATE}]} if gated else {}),
        "status": {"phase": phase},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "phase", "reason", "ready"),
    [
        (pod(gated=True), "Gathering", "Queued", 0),
        (pod(), "Admitted", "Starting", 0),
        (pod(phase="Running"), "Running", "MembersRun", 1),
        (pod(phase="Succeeded"), "Finished", "PodsSucceeded", 1),
        (pod(phase="Failed"), "Failed", "PodsFailed", 0),
    ],
)
def test_a_pod_without_a_gang_object_is_a_line(shown: dict[str, Any], phase: str, reason: str, ready: int) -> None:
    (line,) = plain_pods.lines([shown], [], now=NOW)
    assert (line.phase, line.reason, line.ready, line.size, line.age_s) == (phase, reason, ready, 1, 90)


def test_a_pod_with_a_gang_or_without_named_claims_is_none() -> None:
    member = pod(annotations={names.GANG: "train", names.GANG_SIZE: "2"})
    unmanaged = pod()
    del unmanaged["metadata"]["annotations"]
    known = {"metadata": {"namespace": "ml", "name": "train-x"}}
    assert list(plain_pods.lines([member, unmanaged], [], now=NOW)) == []
    assert list(plain_pods.lines([pod()], [known], now=NOW)) == []


def test_explain_names_the_claims_and_where_they_come_from() -> None:
    parts = {part.title: part.lines for part in explanations.pod_explanation(pod(), None, now=NOW).parts}
    assert parts["Claims"] == (
        "gpu: ResourceClaim ml/train-gpu-x, made from ResourceClaimTemplate one-gpu",
        "old: ResourceClaim ml/train-old-y, made from the limit nvidia.com/gpu: 2 (product nvidia-h100)",
    )
    assert "did not wait" in parts["Fairlead"][0]
    gated = {part.title: part.lines for part in explanations.pod_explanation(pod(gated=True), None, now=NOW).parts}
    assert "see that it runs and leads" in gated["Fairlead"][0]


def test_a_record_that_cannot_be_read_is_shown_as_such() -> None:
    shown = pod(annotations={names.CLAIM_SOURCES: "{"})
    parts = {part.title: part.lines for part in explanations.pod_explanation(shown, None, now=NOW).parts}
    assert "not JSON" in parts["Claims"][0]
