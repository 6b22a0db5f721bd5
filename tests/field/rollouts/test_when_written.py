"""A rollout that will wait for itself is warned about when it is written, by the webhook and by `fairlead check`; nothing is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.webhook.offline import judge, world_of
from tests.support.commands import invoke
from tests.webhook.test_registration import matching

Json = dict[str, Any]
GPU: Json = {"limits": {"nvidia.com/gpu": 8}}


def workload(
    kind: str = "Deployment", *, resources: Json | None = None, claims: Json | None = None, **spec: Any
) -> Json:
    pod: Json = {
        "containers": [{"name": "m", "image": "busybox", "resources": GPU if resources is None else resources}]
    }
    if claims is not None:
        pod |= {"resourceClaims": [{"name": "gpu", **claims}]}
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "llm", "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"app": "llm"}}, "template": template, **spec},
    }


def rolling(surge: Any, unavailable: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def warnings(document: Json) -> list[str]:
    result = next(judge(document, world_of([document])))
    assert result.allowed
    assert not result.mutated.patch
    return [text for text in result.warnings if text.startswith(("spec.strategy", "spec.updateStrategy"))]


@pytest.mark.parametrize(
    ("document", "warned"),
    [
        (workload(), True),
        (workload(replicas=3), True),
        (workload(replicas=4), False),
        (workload(replicas=0), False),
        (workload(replicas=8, strategy=rolling(1, 0)), True),
        (workload(replicas=8, strategy=rolling("25%", "10%")), True),
        (workload(strategy=rolling(0, 1)), False),
        (workload(strategy=rolling(0, "25%")), False),
        (workload(strategy={"type": "Recreate"}), False),
        (workload(resources={"limits": {"cpu": "1"}}), False),
        (workload("DaemonSet"), False),
        (workload("DaemonSet", updateStrategy=rolling(1, 0)), True),
        (workload("DaemonSet", updateStrategy={"type": "OnDelete"}), False),
        (workload(strategy=rolling("many", None)), False),
        (workload(strategy="Recreate"), True),
    ],
)
def test_a_strategy_that_keeps_old_pods_until_new_ones_are_ready_is_warned_about(document: Json, warned: bool):
    found = warnings(document)
    assert len(found) == int(warned)
    if warned:
        assert "the rollout waits for itself; write rollingUpdate: {maxSurge: 0, maxUnavailable: 1}" in found[0]


def test_check_judges_a_deployment_and_its_pods(tmp_path: Path):
    path = tmp_path / "llm.json"
    path.write_text(json.dumps(workload()))
    result = invoke(["check", "-o", "json", str(path)])
    assert result.exit_code == 0
    deployment, pod = json.loads(result.stdout)
    assert deployment["verdict"] == "allowed"
    assert any(text.startswith("spec.strategy: ") for text in deployment["warnings"])
    assert (pod["kind"], pod["verdict"]) == ("Pod", "patched")
    wrong = workload()
    wrong["spec"]["template"]["metadata"]["annotations"] = {names.GANG: "llm", names.GANG_SIZE: "many"}
    path.write_text(json.dumps(wrong))
    assert invoke(["check", str(path)]).exit_code == 1, "its pods would be refused"


@pytest.mark.parametrize(
    ("document", "old", "sent"),
    [
        (workload(), None, {"rollouts"}),
        (workload(resources={}), None, set()),
        (workload(resources={}, claims={"resourceClaimTemplateName": "t"}), None, {"rollouts"}),
        (workload(), workload(), set()),
        (workload(replicas=2), workload(), {"rollouts"}),
    ],
    ids=["with GPUs", "without", "with claims", "unchanged", "changed"],
)
def test_only_those_with_devices_are_sent_and_only_when_their_spec_changes(
    document: Json, old: Json | None, sent: set[str]
):
    assert matching("validating", document, old=old, operation="CREATE" if old is None else "UPDATE") == sent
    assert matching("mutating", document, old=old, operation="CREATE" if old is None else "UPDATE") == set()
