"""A pod written for the device plugin gets claims, each container its own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from tests.support.webhook import admitted, facts, review

Json = dict[str, Any]


def container(name: str = "c", count: Any = None, resource: str = names.LEGACY_GPU, **more: Any) -> Json:
    limits = {"cpu": "2"} if count is None else {"cpu": "2", resource: count}
    return {"name": name, "image": "x", "resources": {"limits": limits, "requests": dict(limits)}} | more


def pod(*containers: Json, init: tuple[Json, ...] = (), **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": list(containers), "initContainers": list(init)} | spec,
    }


def shape(stored: Json) -> dict[str, list[str]]:
    """Container → templates of the claims it uses."""
    templates = {e["name"]: e["resourceClaimTemplateName"] for e in stored["spec"].get("resourceClaims", [])}
    return {
        c["name"]: [templates[use["name"]] for use in c["resources"].get("claims", [])]
        for key in ("initContainers", "containers")
        for c in stored["spec"][key]
    }


def uses_of(stored: Json, name: str) -> list[str]:
    """The claims that one container uses."""
    everyone = stored["spec"]["initContainers"] + stored["spec"]["containers"]
    (found,) = (c for c in everyone if c["name"] == name)
    return [use["name"] for use in found["resources"].get("claims", [])]


def total(stored: Json) -> int:
    return sum(int(e["resourceClaimTemplateName"].rsplit("-", 1)[1]) for e in stored["spec"].get("resourceClaims", []))


@pytest.mark.parametrize("count", [1, "1", "8", 32, "4e0", "2000m"])
def test_whole_quantities_in_any_notation_are_counts(count: Any) -> None:
    stored, verdict = admitted(pod(container(count=count)), facts())
    assert verdict.allowed
    assert total(stored) in {1, 2, 4, 8, 32}


INIT = [
    ("the same as the container", (1,), (1,), 1, ["fairlead-gpu-1"]),
    ("less than the container", (1,), (4,), 4, ["fairlead-gpu-4"]),
    ("all containers together", (3,), (1, 2), 3, ["fairlead-gpu-1", "fairlead-gpu-2"]),
    ("more than all containers", (4,), (1, 1), 4, ["fairlead-gpu-1", "fairlead-gpu-1", "fairlead-gpu-2"]),
    ("no container has any", (2,), (), 2, ["fairlead-gpu-2"]),
]


@pytest.mark.parametrize(("what", "init", "main", "held", "uses"), INIT, ids=[row[0] for row in INIT])
def test_init_containers_use_the_containers_devices_first(
    what: str, init: tuple[int, ...], main: tuple[int, ...], held: int, uses: list[str]
) -> None:
    body = pod(
        *(container(f"m{i}", n) for i, n in enumerate(main)) if main else (container("m"),),
        init=tuple(container(f"i{i}", n) for i, n in enumerate(init)),
    )
    stored, verdict = admitted(body, facts())
    assert verdict.allowed
    assert total(stored) == held
    assert shape(stored)["i0"] == uses


@given(
    init=st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=4).map(tuple),
    main=st.lists(st.integers(0, 8), max_size=3).map(tuple),
)
def test_a_pod_holds_what_kubernetes_counts_and_no_two_containers_share_what_they_use_at_once(
    init: tuple[tuple[int, bool], ...], main: tuple[int, ...]
) -> None:
    stored = in_order(init, main)
    before, peak = 0, 0
    for count, sidecar in init:
        before += count * sidecar
        peak = max(peak, before if sidecar else before + count)
    assert total(stored) == max(before + sum(main), peak)
    at_once = [f"i{n}" for n, (_, sidecar) in enumerate(init) if sidecar] + [f"m{n}" for n in range(len(main))]
    used = [claim for name in at_once for claim in uses_of(stored, name)]
    assert len(used) == len(set(used))
    for number, (count, sidecar) in enumerate(init):
        running = {claim for n in range(number) if init[n][1] for claim in uses_of(stored, f"i{n}")}
        own = uses_of(stored, f"i{number}")
        assert sidecar or not running & set(own)
        assert sum(held_by(stored, claim) for claim in own) >= count


def in_order(init: tuple[tuple[int, bool], ...], main: tuple[int, ...]) -> Any:
    always = {"restartPolicy": "Always"}
    made = tuple(container(f"i{n}", count, **(always if sidecar else {})) for n, (count, sidecar) in enumerate(init))
    stored, verdict = admitted(pod(*(container(f"m{n}", c) for n, c in enumerate(main or (0,))), init=made), facts())
    assert verdict.allowed, verdict
    return stored


def held_by(stored: Any, claim: str) -> int:
    entry = next(each for each in stored["spec"]["resourceClaims"] if each["name"] == claim)
    return int(entry["resourceClaimTemplateName"].rpartition("-")[2])


def test_claims_that_a_pod_has_already_keep_their_names() -> None:
    body = pod(container(count=1), resourceClaims=[{"name": "fairlead-gpu-0", "resourceClaimTemplateName": "nic"}])
    stored, _ = admitted(body, facts())
    assert [e["name"] for e in stored["spec"]["resourceClaims"]] == ["fairlead-gpu-0", "fairlead-gpu-0-2"]


REFUSED = [
    (container(count="500m"), "500m is not whole; a device is given whole. For part of a GPU ask for a MIG device"),
    (container(count="1.5"), "1.5 is not whole"),
    (container(count=-1), "-1 is negative"),
    (container(count="many"), "'many' is no number of devices"),
    (container(count=True), "True is no number of devices"),
    (container(count=1.5), "1.5 is no number of devices"),
    (container(count=33), "33 devices are more than one claim may hold (32)"),
    (container(count="1e99"), "1e99 devices are more than one claim may hold"),
    (container(count=1, resource="nvidia.com/mig-big"), "limits[nvidia.com/mig-big]: no MIG profile"),
    (
        {"name": "c", "resources": {"limits": {names.LEGACY_GPU: 2}, "requests": {names.LEGACY_GPU: 1}}},
        "requests[nvidia.com/gpu]: 1 must equal the limit 2",
    ),
    (
        {"name": "c", "resources": {"requests": {names.LEGACY_GPU: 1}}},
        "limits[nvidia.com/gpu]: is missing, but requests has 1",
    ),
]


@pytest.mark.parametrize(("bad", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_is_denied_with_path_value_and_next_step(bad: Json, message: str) -> None:
    _, verdict = admitted(pod(bad), facts())
    assert not verdict.allowed
    assert verdict.code == 422
    assert verdict.message.startswith("Pod ml/p: spec.containers[0].resources.")
    assert message in verdict.message


def test_a_share_is_a_claim_of_its_own_for_each_container() -> None:
    shared = "nvidia.com/gpu.shared"
    stored, verdict = admitted(
        pod(container("a", 1, shared), container("b", "1", "nvidia.com/mig-1g.10gb.shared")), facts()
    )
    assert verdict.allowed
    assert shape(stored) == {"a": ["fairlead-gpu.shared-1"], "b": ["fairlead-mig-1g.10gb.shared-1"]}
    assert all("nvidia.com" not in str(each["resources"]) for each in stored["spec"]["containers"])


def test_more_than_one_share_is_refused_with_the_reason() -> None:
    _, verdict = admitted(pod(container("c", 2, "nvidia.com/gpu.shared")), facts())
    assert verdict.message == (
        "Pod ml/p: spec.containers[0].resources.limits[nvidia.com/gpu.shared]: 2: a container gets one share of a GPU, and more shares "
        "are no more of its time; write 1"
    )


@pytest.mark.parametrize(
    ("product", "template"),
    [
        ("NVIDIA-H100-80GB-HBM3-SHARED", "fairlead-gpu.shared-1.product-nvidia-h100-80gb-hbm3"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "fairlead-mig-1g.10gb.shared-1.product-nvidia-h100-80gb-hbm3"),
    ],
)
def test_a_product_label_of_shares_makes_nvidia_com_gpu_mean_one(product: str, template: str) -> None:
    stored, _ = admitted(pod(container(count=1), nodeSelector={"nvidia.com/gpu.product": product}), facts())
    assert shape(stored) == {"c": [template]}
    assert not stored["spec"].get("nodeSelector")


def test_where_no_managed_driver_has_nvidias_gpus_their_limits_are_left_to_the_device_plugin() -> None:
    known = facts(drivers=("gpu.amd.com", "gpu.intel.com"))
    body = pod(container(count=1))
    assert dispatch.mutate(review(body), known).patch == ()
    assert dispatch.validate(review(body), known).allowed
    assert dispatch.mutate(review(body), facts(drivers=("gpu.amd.com", "gpu.nvidia.com"))).patch != ()
    bypass = facts(drivers=("gpu.amd.com",), policies=(policy(deviceBypass="Reject"),))
    assert "asks a device plugin for a GPU" in dispatch.validate(review(body), bypass).message


def policy(**spec: Any) -> TenancyPolicy:
    return TenancyPolicy.read({"metadata": {"name": "p"}, "spec": spec})


def test_a_limit_that_was_not_translated_is_denied_for_now() -> None:
    verdict = dispatch.validate(review(pod(container(count=1))), facts())
    assert "was not turned into a claim; the mutating webhook did not see the pod" in verdict.message


SINGLE = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"


def affinity(*values: str, operator: str = "In") -> Json:
    expression = {"key": "nvidia.com/gpu.product", "operator": operator, "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    "chosen", [{"nodeSelector": {"nvidia.com/gpu.product": SINGLE}}, {"affinity": affinity(SINGLE)}]
)
def test_a_gpu_on_nodes_that_show_their_mig_devices_as_gpus_is_a_mig_device(chosen: Json) -> None:
    stored, _ = admitted(pod(container(count=2), **chosen), facts())
    assert shape(stored) == {"c": ["fairlead-mig-1g.10gb-2.product-nvidia-h100-80gb-hbm3"]}
    assert not stored["spec"].get("nodeSelector")
    assert not stored["spec"].get("affinity", {}).get("nodeAffinity")
    assert names.LEGACY_GPU not in stored["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    "values", [(SINGLE, "NVIDIA-L40S"), (SINGLE, "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb"), ("X-MIG-INVALID",)]
)
def test_what_is_of_no_one_profile_stays_a_rule_about_nodes(values: tuple[str, ...]) -> None:
    stored, _ = admitted(pod(container(count=1), affinity=affinity(*values)), facts())
    assert shape(stored) == {"c": ["fairlead-gpu-1"]}
    assert stored["spec"]["affinity"] == affinity(*values)


def test_of_several_rules_about_nodes_those_that_its_claims_select_by_are_removed() -> None:
    rules = [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L40S"]},
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "nvidia.com/gpu.family", "operator": "In", "values": ["ada"]},
        {"key": "rack", "operator": "Exists"},
    ]
    terms = [{"matchExpressions": rules}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    stored, _ = admitted(pod(container(count=1), affinity={"nodeAffinity": required}), facts())
    (term,) = stored["spec"]["affinity"]["nodeAffinity"][next(iter(required))]["nodeSelectorTerms"]
    assert [rule["key"] for rule in term["matchExpressions"]] == ["zone", "rack"]
