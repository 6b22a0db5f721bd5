"""What `fairlead check readiness` is to say of the release of Kubernetes."""

from __future__ import annotations

from typing import Any

from fairlead.cli.health.seen import SliceTrial
from tests.support.health import Lists

from .readiness_cases import FAIL, PASS, UNKNOWN, case


@case("kubernetes", FAIL, "Kubernetes v1.33.4 is older than 1.34")
def an_old_release(_: Lists) -> dict[str, Any]:
    return {"release": "v1.33.4"}


@case("kubernetes", UNKNOWN, "newer than 1.36, the newest release that was tried")
def a_release_that_was_not_tried(_: Lists) -> dict[str, Any]:
    return {"release": "v1.37.0"}


@case("kubernetes", UNKNOWN, "could not be read")
def a_release_that_is_not_known(_: Lists) -> dict[str, Any]:
    return {"release": ""}


@case(
    "kubernetes",
    PASS,
    "Kubernetes v1.34.9, without: MIG on demand (dynamicMig): counters of devices that overlap; shares",
)
def the_oldest_release(_: Lists) -> dict[str, Any]:
    return {"release": "v1.34.9", "gates": {}}


@case("kubernetes", FAIL, "--dynamic-mig: a slice created with dryRun came back without it")
def dynamic_mig_whose_counters_are_dropped(lists: Lists) -> dict[str, Any]:
    lists["daemonsets.apps"][0]["spec"]["template"]["spec"]["containers"][0]["args"].append("--dynamic-mig")
    return {"gates": {}, "slice_trial": SliceTrial(kept={"partitionable-devices": False})}
