"""The protocol benchmark on tiny clusters: what it counts, and that its figures have the documented form."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks import protocol
from benchmarks.protocol.fill import GANG, Fill, fill
from benchmarks.protocol.traffic import Traffic, per_pod
from fairlead.sandbox.apiserver.kinds.request import UserInfo
from fairlead.sandbox.apiserver.state import Completed, State, WebhookCall

pytestmark = pytest.mark.slow

QUICK = ("--quiet-seconds=0.5",)
OWN = "system:serviceaccount:fairlead-system:fairlead-controller"


class Hooks:
    """As much of a State as Traffic needs."""

    on_completed: Any = None
    on_webhook_call: Any = None


def traffic() -> tuple[Traffic, Hooks]:
    state: Any = Hooks()
    made: State = state
    return Traffic(made), state


def request(
    user: str, verb: str, resource: str, subresource: str = "", *, code: int = 200, dry_run: bool = False
) -> Completed:
    return Completed(UserInfo(user), verb, resource, subresource, code, dry_run)


def test_accepted_and_refused_writes_are_counted_by_kind_and_writer() -> None:
    counted, state = traffic()
    state.on_completed(request("admin", "create", "pods", code=201))
    state.on_completed(request(OWN, "patch", "resourceclaims", "status"))
    state.on_completed(request(OWN, "patch", "resourceclaims", "status"))
    state.on_completed(
        request("system:serviceaccount:kube-system:resource-claim-controller", "apply", "pods", "status")
    )
    state.on_completed(request(OWN, "patch", "pods", code=422))
    state.on_webhook_call(WebhookCall("pods.fairlead.dev", True, "CREATE", "pods", ""))
    assert counted.writes == {
        "POST pods, the pods' owner": 1,
        "PATCH resourceclaims/status, fairlead-controller": 2,
        "APPLY pods/status, resource-claim-controller": 1,
    }
    assert counted.refused == {"PATCH pods, fairlead-controller: 422": 1}
    assert counted.calls == {"mutate CREATE pods": 1}


@pytest.mark.parametrize(
    "ignored",
    [
        request(OWN, "get", "pods"),
        request(OWN, "watch", "resourceclaims"),
        request(OWN, "patch", "leases"),
        request(OWN, "create", "selfsubjectaccessreviews"),
        request(OWN, "create", "resourceclaims", dry_run=True),
        request("system:serviceaccount:kube-system:job-controller", "update", "jobs", "status"),
        request("system:node:n1", "patch", "pods", "status"),
        request("admin", "delete", "pods"),
    ],
    ids=lambda each: f"{each.verb} {each.resource}",
)
def test_what_is_not_the_protocols_does_not_count(ignored: Completed) -> None:
    counted, state = traffic()
    state.on_completed(ignored)
    assert not counted.writes
    assert not counted.refused


def test_kinds_are_listed_by_size_and_per_pod() -> None:
    assert list(per_pod({"b": 2, "a": 2, "c": 8}, 4).items()) == [("c", 2.0), ("a", 0.5), ("b", 0.5)]


async def test_the_pods_of_a_gang_belong_to_its_job_and_are_admitted_together() -> None:
    filled = await fill(Fill(nodes=2, pods=2 * GANG, shape="gang8", qps=20.0, quiet_s=0.5))
    assert filled.writes["POST pods/binding, kube-scheduler"] == 2 * GANG
    assert filled.writes["POST gangs, fairlead-controller"] <= 2
    assert filled.writes["PATCH gangs/status, fairlead-controller"] < 2 * GANG


def test_figures_have_the_documented_form_and_say_what_they_consist_of() -> None:
    found = {
        each["figure"]: each for each in protocol.figures(*QUICK, "--parts=writes", "--nodes=2", "--pods=4", "--qps=0")
    }
    assert list(found) == [
        "protocol/writes-per-pod",
        "protocol/refused-writes-per-pod",
        "protocol/webhook-calls-per-pod",
        "protocol/controller-cpu-ms-per-pod/2x4",
        "protocol/webhook-cpu-ms-per-pod/2x4",
    ]
    for each in found.values():
        assert {"figure", "value", "unit", "bar"} <= set(each)
    writes = found["protocol/writes-per-pod"]
    assert writes["bar"] == 7.2
    kinds = writes["by_kind"]
    assert kinds["POST pods, the pods' owner"] == 1
    assert kinds["PATCH resourceclaims/status, fairlead-controller"] == 1
    assert kinds["POST pods/binding, kube-scheduler"] == 1
    assert not [kind for kind in kinds if "leases" in kind or "admin" in kind]
    assert sum(writes["by_kind"].values()) == pytest.approx(writes["value"], abs=1e-3)
    assert found["protocol/refused-writes-per-pod"]["bar"] == 0.02
    assert found["protocol/webhook-calls-per-pod"]["bar"] == 1.1
    assert found["protocol/webhook-calls-per-pod"]["by_kind"]["mutate CREATE pods"] == 1


@pytest.mark.slow
def test_churn_and_failover_end_with_figures() -> None:
    began = time.monotonic()
    found = protocol.figures(
        *QUICK,
        "--parts=churn,failover",
        "--churn-nodes=2",
        "--churn-seconds=1",
        "--failover-nodes=2",
        "--lease-seconds=3",
    )
    churn, failover, handover = found
    assert (churn["figure"], churn["bar"], churn["pods"]) == ("protocol/churn-cpu-ms-per-pod", 6.0, 5)
    assert (failover["figure"], failover["fixed"], failover["lease_duration_s"]) == ("protocol/failover-s/2", 3.0, 3.0)
    assert handover["figure"] == "protocol/handover-s/2"
    took_s = time.monotonic() - began
    assert 0 < handover["value"] < took_s
    assert 1.0 < failover["value"] < took_s, "a lease of 3 s was not waited for"


def test_the_lease_is_renewed_beside_unlike_pods() -> None:
    sizes = ("--unlike-nodes=2", "--unlike-pods=60", "--unlike-seconds=3", "--lease-seconds=4")
    (found,) = protocol.figures(*QUICK, "--parts=unlike", *sizes)
    assert (found["figure"], found["bar"]) == ("protocol/lease-late-s/60-unlike", 1.0)
    assert found["renewals"] >= 2
    assert -0.5 < found["value"] < 3


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        protocol.figures("--parts=writes,nonsense")
    assert "no part nonsense" in capsys.readouterr().err
