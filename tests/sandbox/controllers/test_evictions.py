"""Device taint eviction: only NoExecute, only what is not tolerated, and not before its time."""

from fairlead.sandbox.controllers.evictions import evictions, taints_of

ADDED = "2026-01-01T00:00:00Z"
ADDED_S = 1767225600.0


def slices(*taints, generation=1, pool="node-a"):
    return {
        "metadata": {"name": f"{pool}-{generation}"},
        "spec": {
            "driver": "d",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "taints": list(taints)}, {"name": "gpu-1"}],
        },
    }


def taint(effect="NoExecute", **more):
    return {"key": "xid", "value": "79", "effect": effect, "timeAdded": ADDED, **more}


def claim(device="gpu-0", tolerations=()):
    result = {"request": "r", "driver": "d", "pool": "node-a", "device": device, "tolerations": list(tolerations)}
    return {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}}


def pod(**metadata):
    return {"metadata": {"name": "p", "uid": "p", **metadata}}


def evicted(slice_, claim_, *, now_s=ADDED_S + 1, subject=None):
    found = evictions([subject or pod()], {"p": [claim_]}, taints_of([slice_]), now_s=now_s)
    return [round(each.at_s - ADDED_S) for each in found]


def test_an_untolerated_no_execute_taint_evicts_at_once():
    assert evicted(slices(taint()), claim()) == [0]


def test_no_schedule_and_taints_of_other_devices_evict_no_pod():
    assert evicted(slices(taint("NoSchedule")), claim()) == []
    assert evicted(slices(taint()), claim("gpu-1")) == []


def test_a_toleration_keeps_the_pod_and_one_with_seconds_only_puts_it_off():
    assert evicted(slices(taint()), claim(tolerations=[{"key": "xid", "operator": "Exists"}])) == []
    short = {"key": "xid", "value": "79", "tolerationSeconds": 30}
    assert evicted(slices(taint()), claim(tolerations=[short])) == [30]
    assert evicted(slices(taint()), claim(tolerations=[{**short, "value": "48"}])) == [0]
    assert evicted(slices(taint()), claim(tolerations=[{**short, "effect": "NoSchedule"}])) == [0]
