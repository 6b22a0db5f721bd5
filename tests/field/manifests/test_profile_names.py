"""MIG profiles of a GPU with media engines and graphics, as its operators' layouts and people's limits write them: the same profiles."""

from __future__ import annotations

import json

import pytest

from fairlead.api import legacy, names
from fairlead.driver.layouts.config import parse
from tests.support.webhook import admitted, facts

# In a layout, in a limit.
PROFILES = [
    ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
    ("1g.24gb+gfx", "nvidia.com/mig-1g.24gb.gfx"),
    ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
    ("2g.48gb+me.all", "nvidia.com/mig-2g.48gb.me.all"),
    ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
]


@pytest.mark.parametrize(("profile", "limit"), PROFILES)
def test_a_limit_means_the_profile_of_the_layout(profile: str, limit: str) -> None:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {profile: 1}}
    layouts = parse(json.dumps({"version": "v1", "mig-configs": {"x": [entry]}}).encode(), path="layouts.yaml")
    assert [each.counts for each in layouts["x"]] == [{profile: 1}]
    container = {"name": "m", "image": "busybox", "resources": {"limits": {limit: 1}}}
    pod = {"kind": "Pod", "metadata": {"name": "video", "namespace": "ml"}, "spec": {"containers": [container]}}
    stored, verdict = admitted(pod, facts())
    assert verdict.allowed, verdict.message
    (claim,) = stored["spec"]["resourceClaims"]
    request = legacy.parse_template_name(claim["resourceClaimTemplateName"])
    assert request is not None
    assert (request.profile, request.count) == (profile, 1)
    body = legacy.template_manifest(claim["resourceClaimTemplateName"], "ml", driver=names.DRIVER)
    (wanted,) = body["spec"]["spec"]["devices"]["requests"]
    (selector,) = wanted["exactly"]["selectors"]
    assert selector["cel"]["expression"] == f"device.attributes['{names.DRIVER}'].profile == '{profile}'"


@pytest.mark.parametrize("filters", ["0x20B710DE", ["0x233010de"]], ids=["as text", "in lower case"])
def test_filters_of_devices_are_read_as_operators_write_them(filters: object) -> None:
    entry = {
        "device-filter": filters,
        "devices": [0, 1],
        "mig-enabled": True,
        "mig-devices": {"1g.6gb": 2, "2g.12gb": 1},
    }
    layouts = parse(json.dumps({"version": "v1", "mig-configs": {"x": [entry]}}).encode(), path="layouts.yaml")
    assert [each.counts for each in layouts["x"]] == [{"1g.6gb": 2, "2g.12gb": 1}]
