"""Legacy requests get template names that both programs read the same way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api import legacy


@pytest.mark.parametrize(
    ("resource", "count", "name"),
    [
        ("nvidia.com/gpu", 2, "fairlead-gpu-2"),
        ("nvidia.com/gpu", 32, "fairlead-gpu-32"),
        ("nvidia.com/gpu.shared", 1, "fairlead-gpu.shared-1"),
        ("nvidia.com/mig-1g.10gb.me.shared", 1, "fairlead-mig-1g.10gb.me.shared-1"),
        ("nvidia.com/mig-1g.10gb", 1, "fairlead-mig-1g.10gb-1"),
        ("nvidia.com/mig-1g.10gb.me", 3, "fairlead-mig-1g.10gb.me-3"),
        ("nvidia.com/mig-1c.3g.40gb", 1, "fairlead-mig-1c.3g.40gb-1"),
    ],
)
def test_a_request_has_one_template_name_and_the_name_says_the_request(resource: str, count: int, name: str) -> None:
    assert legacy.template_name(resource, count) == name
    assert legacy.parse_template_name(name) == legacy.LegacyRequest(resource=resource, count=count)


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"fairlead-(gpu|mig-[a-z0-9.']+)-[0-9]+", fullmatch=True))
def test_any_name_is_either_a_request_and_back_or_none(name: str) -> None:
    request = legacy.parse_template_name(name)
    if request is not None:
        assert legacy.template_name(request.resource, request.count) == name
        assert legacy.template_manifest(name, "ml")["metadata"]["name"] == name


def test_another_drivers_classes_can_serve_legacy_requests() -> None:
    (request,) = legacy.template_manifest("fairlead-mig-1g.10gb-1", "ml", driver="gpu.nvidia.com")["spec"]["spec"][
        "devices"
    ]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"
    assert "'gpu.nvidia.com'" in request["exactly"]["selectors"][0]["cel"]["expression"]


NARROWED = [
    (("nvidia.com/gpu.product", "In", "NVIDIA-H100-80GB-HBM3"), ("product", "nvidia-h100-80gb-hbm3")),
    (("nvidia.com/gpu.family", "In", "hopper"), ("family", "hopper")),
    (("nvidia.com/gpu.memory", "Gt", "40000"), ("memory", "gt-40000")),
    (("nvidia.com/gpu.memory", "In", "81559"), ("memory", "eq-81559")),
    (("nvidia.com/gpu.product", "In", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"), None),
    (("nvidia.com/gpu.product", "In", "NVIDIA-L40S-SHARED"), None),
    (("nvidia.com/gpu.product", "In", "NVIDIA_X"), None),
    (("nvidia.com/gpu.product", "NotIn", "NVIDIA-L40S"), None),
    (("nvidia.com/gpu.memory", "Gt", "-1"), None),
    (("nvidia.com/gpu.count", "In", "8"), None),
]


@pytest.mark.parametrize(("label", "pair"), NARROWED, ids=[" ".join(label) for label, _ in NARROWED])
def test_a_gpu_label_becomes_a_part_of_the_name_or_nothing(
    label: tuple[str, str, str], pair: tuple[str, str] | None
) -> None:
    assert legacy.narrowed(*label) == pair


def test_a_narrowed_name_says_what_it_stands_for_in_one_way_only() -> None:
    narrow = (("product", "nvidia-l40s"), ("memory", "gt-40000"), ("product", "nvidia-h100-80gb-hbm3"))
    name = legacy.template_name("nvidia.com/gpu", 2, narrow)
    assert name == legacy.template_name("nvidia.com/gpu", 2, tuple(reversed(narrow)))
    found = legacy.parse_template_name(name)
    assert found is not None
    assert legacy.template_name(found.resource, found.count, found.narrow) == name
    swapped = "fairlead-gpu-2.product-nvidia-l40s.memory-gt-40000.product-nvidia-h100-80gb-hbm3"
    assert legacy.parse_template_name(swapped) is None


@pytest.mark.parametrize(
    "name",
    [
        "fairlead-gpu.shared-2",
        "fairlead-gpu-2.",
        "fairlead-gpu-2.product-",
        "fairlead-gpu-2.zone-a",
        "fairlead-gpu-2.memory-5",
    ],
)
def test_a_name_that_says_nothing_more_is_not_ours(name: str) -> None:
    assert legacy.parse_template_name(name) is None


def test_a_share_is_of_a_device_that_several_claims_may_hold() -> None:
    (request,) = legacy.template_manifest("fairlead-mig-1g.10gb.shared-1", "ml")["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.gpu.fairlead.dev"
    assert [each["cel"]["expression"] for each in request["exactly"]["selectors"]] == [
        "device.attributes['gpu.fairlead.dev'].profile == '1g.10gb'",
        "device.allowMultipleAllocations == true",
    ]
