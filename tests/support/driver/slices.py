"""What the apiserver checks of ResourceSlices, as assertions. Not imported by the programs.

Source: k8s.io/api/resource/v1 types.go and its validation, 1.36.
"""

from __future__ import annotations

import re

from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import Layout
from fairlead.kube import semver

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def check_limits(built: slices.PoolSlices, layout: Layout) -> None:
    """The limits of resource.k8s.io/v1 as the apiserver enforces them."""
    names = [device.name for device in built.devices]
    assert len(names) == len(set(names))
    sets = {counter_set.name for body in built.slices for counter_set in body.shared_counters}
    for body in built.slices:
        assert len(body.devices) <= 64
        assert len(body.shared_counters) <= 8
        assert layout == "combined" or not (body.devices and body.shared_counters)
        for counter_set in body.shared_counters:
            assert 0 < len(counter_set.counters) <= 32
            assert all(DNS_LABEL.fullmatch(name) for name in counter_set.counters)
        for device in body.devices:
            assert DNS_LABEL.fullmatch(device.name)
            assert len(device.attributes) + len(device.capacity) <= 32
            assert len(device.consumes_counters) <= 2
            for name, attribute in device.attributes.items():
                domain, _, identifier = name.rpartition("/")
                assert IDENTIFIER.fullmatch(identifier)
                assert len(domain) <= 63
                if attribute.version is not None:
                    semver.parse(attribute.version)
                assert len(attribute.string or attribute.version or "") <= 64
            for consumption in device.consumes_counters:
                assert consumption.counter_set in sets
                assert len(consumption.counters) <= 32
            if layout == "combined" and device.consumes_counters:
                here = {counter_set.name for counter_set in body.shared_counters}
                assert device.consumes_counters[0].counter_set in here
