"""`fairlead doctor`: of a healthy cluster nothing; of each cause that cause first; of odd objects no error."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.cli.health.doctor import admission, devices, diagnosis, programs, waiting
from fairlead.cli.health.doctor.diagnosis import diagnose, gaps
from fairlead.cli.health.doctor.waiting import reasons
from fairlead.cli.health.seen import Listed, Seen
from fairlead.kube.resources import Raw
from tests.support import health
from tests.support.health import DROP, NODES, NOW

from .doctor_cases import ALL, CASES, CLAIMS, NOTE, TEMPLATES


def test_of_a_healthy_cluster_nothing_is_found() -> None:
    found = health.seen(health.healthy())
    assert diagnose(found) == []
    assert gaps(found) == []


@pytest.mark.parametrize("what", CASES)
def test_each_cause_is_found_and_comes_first(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, stops, said, change, facts = CASES[what]
    found = health.seen(health.changed(health.healthy(), change), **facts)
    first, *others = diagnose(found)
    assert (first.code, first.stops) == (code, stops)
    assert first.next_step
    assert [each.code for each in others if each.stops is ALL and stops is not ALL] == []
    diagnosis._print(found, [first])
    printed = capsys.readouterr().out
    assert said in printed
    assert f"1. {code}" in printed


def test_every_cause_has_a_case() -> None:
    sources = "".join(map(inspect.getsource, (admission, devices, programs, waiting)))
    named = {code for line in re.findall(r"code=(.*)", sources) for code in re.findall(r'"([A-Z]\w+)"', line)}
    assert len(named) >= 20
    assert named <= {case.code for case in CASES.values()}


def test_every_cause_is_documented() -> None:
    table = (
        (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text().partition("## A job does not start")[0]
    )
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented == {case.code for case in CASES.values()}


def test_causes_that_stop_everything_come_before_others() -> None:
    causes = ("a_clock_that_is_ahead", "no_queue", "a_pod_for_volcano", "no_slices", "no_lease")
    lists = health.changed(health.healthy(), *(CASES[each].change for each in causes))
    codes = [each.code for each in diagnose(health.seen(lists))]
    assert codes == ["NoLeader", "NoSlices", "OtherScheduler", "ClockSkew", "NoQueue"]


def test_what_waits_is_counted_by_reason() -> None:
    lists = health.healthy()
    lists["gangs.fairlead.dev"] += [health.gang(f"w{n}", "Waiting", reason="DevicesInUse") for n in range(2)]
    lists["gangs.fairlead.dev"].append(health.gang("g", "Gathering", reason="Gathering"))
    found = health.seen(lists)
    assert diagnose(found) == []
    assert reasons(found) == "3 gangs wait: 2 DevicesInUse, 1 Gathering"


def test_a_pod_of_a_gang_that_wants_no_device_is_not_fairleads() -> None:
    lists = health.healthy()
    for name, scheduler in (("plain", "volcano"), ("own", "")):
        made = health.pod(name, schedulerName=scheduler, resourceClaims=[])
        made["metadata"]["annotations"] = {names.GANG: "g"}
        lists["pods"].append(made)
    assert diagnose(health.seen(lists)) == []


def test_an_order_to_apply_manifests_again_is_not_stopped_by_who_applied_them_before() -> None:
    sources = "".join(map(inspect.getsource, (admission, devices, programs, waiting)))
    orders = re.findall(r"kubectl apply --server-side [^;,\"]*", sources)
    assert len(orders) >= 4
    assert all("--force-conflicts" in order for order in orders)


def test_what_may_not_be_read_is_said_and_not_guessed() -> None:
    nothing = Seen(now=NOW, lists={kind: Listed(gap=f"you may not list {kind}") for kind in health.healthy()})
    assert diagnose(nothing) == []
    assert "you may not list pods" in gaps(nothing)


def test_each_kind_that_may_not_be_read_leads_to_no_cause() -> None:
    for kind in health.healthy():
        found = health.seen(health.healthy())
        refused = dataclasses.replace(found, lists={**found.lists, kind: Listed(gap=f"you may not list {kind}")})
        assert [each.code for each in diagnose(refused) if each.stops is not NOTE] == [], kind


def test_of_a_claim_of_two_drivers_what_is_allocated_or_wholly_managed_is_no_cause() -> None:
    """Once the second driver is managed nothing is found, nor of a claim that got its devices while it was."""
    lists = health.changed(health.healthy(), CASES["a_claim_of_two_drivers_of_which_one_is_not_managed"].change)
    (found,) = diagnose(health.seen(lists))
    assert found.code == "MixedDrivers"
    assert "team/both, team/both-gpu" in found.evidence[0]
    assert "MixedDrivers" not in {each.code for each in diagnose(health.seen(lists, drivers=(names.DRIVER, "dra.net")))}
    allocated = health.claim("both-gpu", allocated_by="fairlead-controller", device="gpu-1")
    allocated["spec"] = lists[CLAIMS][-1]["spec"]
    lists = health.changed(lists, {f"{CLAIMS} both-gpu": allocated, f"{TEMPLATES} both": DROP})
    assert diagnose(health.seen(lists)) == []


def _with_nic(name: str, device: str, *, gpu: str = "", **more: Any) -> Raw:
    """A claim with a NIC, and with that GPU beside it."""
    made = health.claim(name, allocated_by="fairlead-controller" if gpu else "kube-scheduler", device=gpu)
    results = made["status"]["allocation"]["devices"]["results"]
    nic = {"request": "nic", "driver": "dra.net", "pool": NODES[0], "device": device, **more}
    made["status"]["allocation"]["devices"]["results"] = [*(results if gpu else ()), nic]
    made["spec"]["devices"]["requests"] = []
    return made


def test_a_driver_that_is_shared_in_claims_is_no_cause_beside_managed_devices() -> None:
    """Nor for claims that are still to be allocated, nor for a device that others may see (admin access) or use, too (a share)."""
    lists = health.changed(health.healthy(), CASES["a_claim_of_two_drivers_of_which_one_is_not_managed"].change)
    lists[CLAIMS] += [
        _with_nic("a", "nic-0", gpu="gpu-1"),
        _with_nic("b", "nic-1", gpu="gpu-2"),
        _with_nic("watches", "nic-0", adminAccess=True),
        _with_nic("shares", "nic-2", gpu="gpu-3", shareID="1"),
        _with_nic("shares-too", "nic-2", gpu="gpu-4", shareID="2"),
    ]
    assert diagnose(health.seen(lists, shared_drivers=("dra.net",))) == []
    assert "MixedDrivers" in {each.code for each in diagnose(health.seen(lists))}


@pytest.mark.parametrize("second", ["", "gpu-2"])
def test_a_device_of_a_shared_driver_in_two_claims_is_named_with_both(second: str) -> None:
    lists = health.healthy()
    lists[CLAIMS] += [_with_nic("a", "nic-0", gpu="gpu-1"), _with_nic("b", "nic-0", gpu=second)]
    (found,) = diagnose(health.seen(lists, shared_drivers=("dra.net",)))
    assert found.code == "SharedDriverAlone"
    assert found.evidence[0] == f"dra.net/{NODES[0]}/nic-0 is in team/a, team/b"
    assert "delete the pods of one" in found.next_step
    assert ("allocated for dra.net alone: team/b" in found.evidence) == (not second)


# -- odd objects ---------------------------------------------------------------------------------------------------------

_HEALTHY = health.healthy()
_PLACES = [each for each in health.places(_HEALTHY) if each[0] != "customresourcedefinitions.apiextensions.k8s.io"]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), health.ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_do_not_stop_it(changes: list[tuple[tuple[str, int, tuple[Any, ...]], Any]]) -> None:
    for each in diagnose(health.seen(health.with_odd_values(_HEALTHY, changes))):
        text = "".join((each.what, each.next_step, *each.evidence))
        assert text.isprintable()


def test_whatever_is_no_object_at_all_is_passed_over() -> None:
    assert [
        each for each in diagnose(health.seen({key: list(health.NO_OBJECTS) for key in _HEALTHY})) if not each.what
    ] == []
