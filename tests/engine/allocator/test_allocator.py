"""What a claim gets on one node, rule by rule; the recorded answers of a real Kubernetes cover the combinations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.engine.plan.decide import Engine
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.kube import resource
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, plain_json
from tests.support.engine.world import World, devices_of

DRIVER = names.DRIVER
ISLAND = f"{DRIVER}/nvlinkDomain"


def world(*devices: dict[str, Any]) -> World:
    made = World()
    made.add_node("node", devices)
    return made


def allocation(plan: Plan) -> resource.AllocationResult:
    assert plan.admissions, plan.waiting[0].reason
    return plan.admissions[0].claims[0].allocation


def everything(**more: Any) -> dict[str, Any]:
    return {"deviceClassName": names.GPU_CLASS, "allocationMode": "All", **more}


class TestModes:
    def test_all_waits_while_a_matching_device_is_tainted(self):
        taints = [{"key": "xid", "effect": "NoSchedule"}]
        made = world(gpu(0), gpu(1, taints=taints))
        plan = made.decide(gang("job", 1, claim_spec(everything())))
        assert "taint xid:NoSchedule" in str(plan.waiting[0].reason)
        tolerant = everything(tolerations=[{"key": "xid", "operator": "Exists"}])
        assert len(allocation(made.decide(gang("job", 1, claim_spec(tolerant)))).devices.results) == 2

    def test_first_available_prefers_the_node_that_has_the_first_choice(self):
        made = World()
        made.add_node("a", [gpu(0, product="second")])
        made.add_node("b", [gpu(0, product="first")])
        model = f'device.attributes["{DRIVER}"].productName'
        options = [device_request(name=name, cel=f'{model} == "{name}"') for name in ("absent", "first", "second")]
        plan = made.decide(gang("job", 1, claim_spec({"firstAvailable": options})))
        assert plan.admissions[0].assignments[0].node == "b"
        assert allocation(plan).devices.results[0].request == "r0/first"

    def test_thirty_two_devices_are_the_most_a_claim_may_hold(self):
        made = world(*(gpu(minor) for minor in range(40)))
        assert len(allocation(made.decide(gang("job", 1, claim_spec(device_request(32))))).devices.results) == 32
        assert made.decide(gang("job", 1, claim_spec(device_request(20), device_request(12)))).admissions
        assert not made.decide(gang("job", 1, claim_spec(device_request(20), device_request(20)))).admissions
        too_many = made.decide(gang("job", 1, claim_spec(device_request(33))))
        assert too_many.waiting[0].reason.code is Code.INVALID
        assert not made.decide(gang("job", 1, claim_spec(everything()))).admissions

    def test_admin_access_sees_devices_that_are_in_use_and_takes_none(self):
        made = world(gpu(0))
        one = gang("one", 1, claim_spec(device_request()))
        made.carry_out(made.decide(one), [one])
        admin = gang("admin", 1, claim_spec(device_request(adminAccess=True)))
        plan = made.decide(admin)
        assert allocation(plan).devices.results[0].admin_access
        made.carry_out(plan, [admin])
        assert not made.faults()
        made.end("ml/one")
        assert made.decide(gang("next", 1, claim_spec(device_request()))).admissions


class TestSharedDevices:
    @pytest.mark.parametrize(
        ("policy", "asked", "taken"),
        [
            (None, None, "80Gi"),
            (None, "10Gi", "10Gi"),
            ({"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}, None, "5Gi"),
            ({"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}, "7Gi", "10Gi"),
            ({"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}, "21Gi", None),
            ({"default": "4Gi", "validRange": {"min": "4Gi", "max": "20Gi", "step": "4Gi"}}, "1Gi", "4Gi"),
            ({"default": "4Gi", "validRange": {"min": "4Gi", "max": "20Gi", "step": "4Gi"}}, "9Gi", "12Gi"),
            ({"default": "4Gi", "validRange": {"min": "4Gi", "max": "18Gi", "step": "4Gi"}}, "17Gi", None),
        ],
    )
    def test_a_share_is_rounded_up_to_the_policy(self, policy, asked, taken):
        device = gpu(0, allowMultipleAllocations=True)
        if policy is not None:
            device["capacity"]["memory"]["requestPolicy"] = policy
        made = world(device)
        capacity: dict[str, Any] = {} if asked is None else {"capacity": {"requests": {"memory": asked}}}
        job = gang("job", 1, claim_spec(device_request(**capacity)))
        plan = made.decide(job)
        if taken is None:
            assert not plan.admissions
            return
        assert allocation(plan).devices.results[0].consumed_capacity == {"memory": taken}
        made.carry_out(plan, [job])
        assert not made.faults()

    def test_shares_are_packed_onto_the_fullest_device_until_it_is_full(self):
        made = world(gpu(0, allowMultipleAllocations=True), gpu(1, allowMultipleAllocations=True))
        spec = claim_spec(device_request(capacity={"requests": {"memory": "30Gi"}}))
        jobs = [gang(f"job-{number}", 1, spec, created=float(number)) for number in range(5)]
        plan = made.decide(*jobs)
        assert [name for job in jobs for name in devices_of(plan, job.name)] == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
        ids = {claim.allocation.devices.results[0].share_id for entry in plan.admissions for claim in entry.claims}
        assert len(ids) == 4
        made.carry_out(plan, jobs)
        assert not made.faults()

    def test_a_capacity_requested_of_an_exclusive_device_is_a_filter(self):
        made = world(gpu(0, memory="40Gi"), gpu(1, memory="80Gi"))
        spec = claim_spec(device_request(capacity={"requests": {"memory": "60Gi"}}))
        assert devices_of(made.decide(gang("job", 1, spec)), "job") == ["gpu-1"]
        qualified = claim_spec(device_request(capacity={"requests": {f"{DRIVER}/memory": "60Gi"}}))
        assert devices_of(made.decide(gang("job", 1, qualified)), "job") == ["gpu-1"]


class TestResults:
    def test_configs_of_the_class_come_before_the_claims_and_only_those_that_apply(self):
        made = world(gpu(0))
        opaque = {"driver": DRIVER, "parameters": {"kind": "GpuConfig"}}
        made.add_class("configured", {"config": [{"opaque": opaque}]})
        options = {
            "firstAvailable": [
                device_request(2, device_class="configured", name="two"),
                device_request(1, device_class="configured", name="one"),
            ]
        }
        config: list[dict[str, Any]] = [
            {"requests": ["r0/two"], "opaque": {"driver": DRIVER, "parameters": 1}},
            {"requests": ["r0"], "opaque": {"driver": DRIVER, "parameters": 2}},
            {"opaque": {"driver": DRIVER, "parameters": 3}},
        ]
        given = allocation(made.decide(gang("job", 1, claim_spec(options, config=config))))
        assert [
            (entry.source, entry.requests, entry.opaque and entry.opaque.parameters) for entry in given.devices.config
        ] == [
            ("FromClass", ("r0/one",), {"kind": "GpuConfig"}),
            ("FromClaim", ("r0",), 2),
            ("FromClaim", (), 3),
        ]

    def test_tolerations_and_binding_conditions_are_copied(self):
        device = gpu(0, bindingConditions=["ready"], bindingFailureConditions=["broken"])
        tolerations = [{"key": "xid", "operator": "Exists"}]
        body = plain_json(
            allocation(world(device).decide(gang("job", 1, claim_spec(device_request(tolerations=tolerations)))))
        )
        result = body["devices"]["results"][0]
        assert result["tolerations"] == tolerations
        assert (result["bindingConditions"], result["bindingFailureConditions"]) == (["ready"], ["broken"])

    def test_the_node_selector_is_the_node_or_that_of_the_devices(self):
        made = World()
        made.add_node("node", labels={"zone": "a"})
        rule = {"key": "zone", "operator": "In", "values": ["a"]}
        for name, where in (
            ("all", {"allNodes": True}),
            ("some", {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}),
        ):
            made.add_slices(
                [
                    {
                        "metadata": {"name": name},
                        "spec": {
                            "driver": DRIVER,
                            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                            "devices": [gpu(0, product=name)],
                            **where,
                        },
                    }
                ]
            )
        model = f'device.attributes["{DRIVER}"].productName'
        given = {
            name: plain_json(
                allocation(made.decide(gang("job", 1, claim_spec(device_request(cel=f'{model} == "{name}"')))))
            ).get("nodeSelector")
            for name in ("all", "some")
        }
        assert given == {"all": None, "some": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
        plan = world(gpu(0)).decide(gang("job", 1, claim_spec(device_request())))
        assert plain_json(allocation(plan))["nodeSelector"] == {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}]
        }

    def test_share_ids_come_from_the_caller(self):
        made = world(gpu(0, allowMultipleAllocations=True))
        plan = Engine().decide(
            made.snapshot(gang("job", 1, claim_spec(device_request()))),
            0.0,
            share_ids=lambda claim, request, device: f"{claim}/{request}",
        )
        assert allocation(plan).devices.results[0].share_id == "job-0-gpu/r0"


def test_a_taint_rule_keeps_a_device_from_those_that_do_not_tolerate_it():
    made = world(gpu(0), gpu(1))
    job = gang("job", 1, claim_spec(device_request(2)))
    assert made.decide(job).admissions
    body: dict[str, Any] = {
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": {"device": "gpu-1"}, "taint": {"key": "broken", "effect": "NoSchedule"}},
    }
    made.inventory.set_taint_rule(msgspec.convert(body, resource.DeviceTaintRule))
    plan = made.decide(job)
    assert "taint broken:NoSchedule" in str(plan.waiting[0].reason)
    tolerant = device_request(2, tolerations=[{"key": "broken", "operator": "Exists"}])
    assert made.decide(gang("job", 1, claim_spec(tolerant))).admissions
    made.inventory.drop_taint_rule("broken")
    assert made.decide(job).admissions
    del body["spec"]["deviceSelector"]  # covers nothing
    made.inventory.set_taint_rule(msgspec.convert(body, resource.DeviceTaintRule))
    assert made.decide(job).admissions


def test_network_devices_are_not_allocated_to_pods_of_two_nodes_at_once():
    made = World()
    made.add_node("a")
    made.add_node("b")
    made.add_slices(
        [
            {
                "metadata": {"name": "net"},
                "spec": {
                    "driver": DRIVER,
                    "allNodes": True,
                    "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
                    "devices": [gpu(0), gpu(1)],
                },
            }
        ]
    )
    plan = made.decide(gang("job", 2, claim_spec(device_request())))
    assert sorted(devices_of(plan, "job")) == ["gpu-0", "gpu-1"]
    assert not made.decide(gang("job", 3, claim_spec(device_request()))).admissions
