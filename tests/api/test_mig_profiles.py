"""Names of MIG profiles, as NVML has them, in resources, in templates and in layouts."""

import itertools
import json

import pytest

from fairlead.api import legacy, mig_profiles, names
from fairlead.driver.layouts.config import parse

SIZES = ["1g.5gb", "1g.10gb", "7g.80gb", "1g.24gb", "4g.96gb", "12g.288gb"]
SIGNED = [sign + attribute for sign, attribute in itertools.product("+-", mig_profiles.ATTRIBUTES)]
PROFILES = [size + more for size in SIZES for more in ("", *SIGNED, "+gfx+me", "+me.all+gfx", "+gfx-me")]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_name_is_read_the_same_in_limits_templates_labels_and_layouts(profile: str) -> None:
    resource = f"{names.LEGACY_MIG_PREFIX}{mig_profiles.in_resource(profile)}"
    assert "+" not in resource
    assert legacy.profile_of(resource) == profile
    request = legacy.parse_template_name(legacy.template_name(resource, 2))
    assert request is not None
    assert (request.profile, request.count) == (profile, 2)
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {profile: 1}}
    layouts = parse(json.dumps({"version": "v1", "mig-configs": {"x": [entry]}}).encode(), path="layouts.yaml")
    assert [each.counts for each in layouts["x"]] == [{profile: 1}]
    assert legacy.meant_by_product(f"NVIDIA-H100-MIG-{mig_profiles.in_resource(profile)}") == ("nvidia-h100", resource)


def test_a_part_of_a_profile_is_told_from_it() -> None:
    assert mig_profiles.is_compute_instance("1c.3g.20gb")
    assert not mig_profiles.is_compute_instance("3g.20gb")
    assert mig_profiles.of_resource("1c.3g.20gb.me") == "1c.3g.20gb+me"
