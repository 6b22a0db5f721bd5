"""The demo's record of a run: it must see what it exists to see, above all a device in two claims."""

import pytest

from fairlead.cli.demo import cases
from fairlead.cli.demo.history import DeviceUse, GangKey, History


def claim(name, *devices, uid=None, admin=False):
    results = [
        {"request": "gpu", "driver": "gpu.fairlead.dev", "pool": "node-a", "device": device, "adminAccess": admin}
        for device in devices
    ]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "p"}]} if results else {}
    return {"metadata": {"namespace": "vision", "name": name, "uid": uid or f"uid-{name}"}, "status": status}


def pod(name, *, gang="", phase="Pending", node="", claims=(), gated=False, namespace="vision"):
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    if node:
        spec["nodeName"] = node
    if gated:
        spec["schedulingGates"] = [{"name": "fairlead.dev/admission"}]
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {"fairlead.dev/gang": gang} if gang else {},
        },
        "spec": spec,
        "status": {"phase": phase, "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": c} for c in claims]},
    }


def test_a_device_in_two_claims_at_once_is_a_violation_that_stays():
    history = History()
    history.claim(claim("a", "gpu-0", "gpu-1"))
    history.claim(claim("b", "gpu-1"))
    history.claim(claim("b"))
    assert history.double_use == ["node-a/gpu-1 is in claim uid-b and in claim uid-a"]


def test_a_device_that_moves_from_one_claim_to_the_next_is_not_a_violation():
    history = History()
    history.claim(claim("a", "gpu-0"))
    history.claim(claim("a"))
    history.claim(claim("b", "gpu-0"))
    history.claim(claim("b", "gpu-0"), deleted=True)
    history.claim(claim("c", "gpu-0"))
    assert history.double_use == []
    assert history.held_now() == {("node-a", "gpu-0"): "uid-c"}


def test_admin_access_does_not_hold_a_device():
    history = History()
    history.claim(claim("a", "gpu-0"))
    history.claim(claim("admin", "gpu-0", admin=True))
    assert history.double_use == []


def test_a_pod_that_ran_keeps_the_claim_that_it_used():
    history = History()
    history.claim(claim("used", "gpu-0"))
    history.pod(pod("p", claims=("first",)), now_s=0.0)
    history.pod(pod("p", claims=("used",), node="n", phase="Running"), now_s=1.0)
    history.pod(pod("p", claims=("late",), node="n", phase="Succeeded"), now_s=2.0)
    (record,) = history.pods.values()
    assert history.devices(record) == [DeviceUse("gpu", "node-a", "gpu-0")]


def test_a_gang_waits_until_its_last_member_is_bound():
    history = History()
    for member in ("x-0", "x-1"):
        history.pod(pod(member, gang="x", gated=True), now_s=1.0)
    history.pod(pod("x-0", gang="x", node="n"), now_s=3.0)
    (gang,) = history.gangs()
    assert gang.wait_s is None
    history.pod(pod("x-1", gang="x", node="n"), now_s=4.5)
    (gang,) = history.gangs()
    assert (gang.key, gang.wait_s) == (GangKey("vision", "x"), 3.5)


def test_devices_of_a_released_claim_are_remembered():
    history = History()
    history.pod(pod("solo", claims=["solo-gpu-abcde"]), now_s=0.0)
    history.claim(claim("solo-gpu-abcde", "gpu-7"))
    history.claim(claim("solo-gpu-abcde"), deleted=True)
    (record,) = history.pods.values()
    assert history.devices(record) == [DeviceUse("gpu", "node-a", "gpu-7")]
    assert not any(found.allocated for found in history.claims.values())


def test_a_case_fails_when_its_device_is_of_another_model():
    history = History()
    history.pod(pod("notebook", claims=["c"]), now_s=0.0)
    history.claim(claim("c", "gpu-0"))
    history.pod(pod("notebook", claims=["c"], node="node-a", phase="Succeeded"), now_s=2.0)
    assert cases.ONE_GPU.finished(history)
    assert cases.ONE_GPU.failures(history, lambda pool, device: {"productName": "NVIDIA H100 80GB HBM3"}) == []
    assert cases.ONE_GPU.failures(history, lambda pool, device: {"productName": "NVIDIA L40S"}) == [
        "pod notebook got node-a/gpu-0, a NVIDIA L40S, instead of an H100"
    ]


def two_gangs(*, second_s, reason):
    """Of the first gang's 12 pods ten end at 8 s, two at 9 s; the second gang is bound at `second_s`."""
    history = History()
    for namespace, gang, start in (("vision", "resnet", 0.0), ("language", "bert", second_s - 1)):
        for index in range(12):
            name = f"{gang}-{index}"
            history.pod(pod(name, gang=gang, namespace=namespace, claims=[name]), now_s=0.0)
            held = claim(name, f"gpu-{index}")
            held["metadata"]["namespace"] = namespace
            history.claim(held)
            history.pod(pod(name, gang=gang, namespace=namespace, node="n", claims=[name]), now_s=start + 1)
            history.claim(held, deleted=True)
            history.pod(
                pod(name, gang=gang, namespace=namespace, phase="Succeeded", claims=[name]),
                now_s=start + 8 + (index > 9),
            )
    history.gang(
        {"metadata": {"namespace": "language", "name": "bert"}, "status": {"phase": "Waiting", "message": reason}}
    )
    return history


def h100(pool, device):
    return {"productName": "NVIDIA H100 80GB HBM3", "type": "gpu"}


@pytest.mark.parametrize("second_s", [8.5, 10.0])
def test_two_gangs_with_a_reason_keep_the_promise_when_the_second_starts_once_enough_of_the_first_has_ended(second_s):
    assert cases.TWO_GANGS.failures(two_gangs(second_s=second_s, reason="needs 12 H100s, 4 are free"), h100) == []


def test_two_gangs_that_overlap_or_wait_without_a_reason_break_the_promise():
    (overlap,) = cases.TWO_GANGS.failures(two_gangs(second_s=6.0, reason="needs 12, 4 free"), h100)
    assert "bound while 12 pods of resnet ran: all of it cannot fit on 16 H100s" in overlap
    (silent,) = cases.TWO_GANGS.failures(two_gangs(second_s=10.0, reason=""), h100)
    assert "without a reason" in silent


def test_pods_that_were_evicted_do_not_count_as_the_gang_that_ran():
    history = History()
    history.pod(pod("a-1", gang="a", node="n"), now_s=1.0)
    gone = pod("a-1", gang="a", node="n", phase="Failed")
    gone["metadata"]["annotations"]["fairlead.dev/evict-at"] = "2026-01-01T00:00:00Z"
    history.pod(gone, now_s=5.0)
    gang = history.find("vision", "a")
    assert gang is not None
    assert (gang.held, gang.wait_s, gang.lasting) == (None, None, [])
    history.pod(pod("a-2", gang="a"), now_s=6.0)
    history.pod(pod("a-2", gang="a", node="n"), now_s=8.0)
    history.pod(pod("a-2", gang="a", node="n", phase="Succeeded"), now_s=9.0)
    gang = history.find("vision", "a")
    assert gang is not None
    assert (gang.held, gang.wait_s, gang.succeeded) == ((8.0, 9.0), 2.0, True)
    assert len(gang.pods) == 2
