"""What a gang says of members on a node that does not answer: which node, since when, and what would help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.bounds import read_bounds
from fairlead.api.queue import QueueSpec
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.held.leaving import OUT_OF_SERVICE, lost_nodes, overdue
from fairlead.controller.report.gang_phase import PhaseSummary, summarize
from fairlead.kube import core, timestamps
from tests.controller.gangs.test_membership import gang, job, members

SINCE = "2026-11-27T04:51:37Z"
EIGHT = job(parallelism=4)


def node(status: str = "Unknown", *, taint: str = "") -> core.Node:
    taints = [{"key": taint, "effect": "NoExecute"}] if taint else []
    ready = {"type": "Ready", "status": status, "lastTransitionTime": SINCE}
    return msgspec.convert(
        {"metadata": {"name": "n0"}, "spec": {"taints": taints}, "status": {"conditions": [ready]}}, core.Node
    )


def spread(shown: str, elsewhere: str) -> Any:
    """A gang of four: those `shown` are on n0, those `elsewhere` on n1."""
    pods, held = members(shown, size=4)
    more, more_held = members(elsewhere, size=4, first=len(shown))
    more = [msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, node_name="n1")) for each in more]
    return gang(pods + more, held + more_held, [EIGHT])


def said(shown: str, on: core.Node | None, *, elsewhere: str = "") -> PhaseSummary:
    """What it says while n0 is so, and n1 is well."""
    found = spread(shown, elsewhere)
    return summarize(found, SchedulingState(lost=lost_nodes(found, {"n0": on, "n1": node("True")}.get)))


def test_while_its_pods_are_not_deleted_yet() -> None:
    found = said("RR", node(), elsewhere="RR")
    assert (found.phase, found.reason) == ("Running", "NodeLost")
    assert found.message == (
        f"4 of 4 members run; 2 members are on node n0, which has not answered since {SINCE}; they are replaced once it is back, "
        f"deleted, or tainted {OUT_OF_SERVICE}"
    )


def test_when_they_are_deleted_and_cannot_end() -> None:
    found = said("TT", node(), elsewhere="RR")
    assert (found.phase, found.reason) == ("Running", "NodeLost")
    assert found.message.startswith(
        f"2 of 4 members run; 2 members are on node n0, which has not answered since {SINCE}"
    )
    assert "being replaced" not in found.message
    assert said("TTTT", node()).reason == "NodeLost"


def test_a_node_that_says_itself_that_it_is_not_ready() -> None:
    assert "1 member is on node n0, which is not ready since" in said("R", node("False"), elsewhere="RRR").message


@pytest.mark.parametrize(
    "on", [node("True"), node(taint=OUT_OF_SERVICE), None], ids=["back", "out of service", "deleted"]
)
def test_what_is_being_replaced_is_said_so(on: core.Node | None) -> None:
    assert said("TT", on, elsewhere="RR").reason == "Replacing"


@pytest.mark.parametrize(
    ("shown", "elsewhere", "timeout", "after_s", "evicted"),
    [
        ("TT", "RR", "5m", 301.0, True),
        ("RR", "RR", "5m", 301.0, True),  # Kubernetes marks them only after five minutes of its own
        ("TT", "RR", "5m", 299.0, False),
        ("TT", "RR", None, 9999.0, False),
        ("T", "RRRR", "5m", 301.0, False),  # four run, as it needs
        ("TTTT", "", "5m", 301.0, False),  # nothing to give back
    ],
)
def test_when_the_others_give_their_devices_back(
    shown: str, elsewhere: str, timeout: str | None, after_s: float, evicted: bool
) -> None:
    found = spread(shown, elsewhere)
    lost = lost_nodes(found, {"n0": node(), "n1": node("True")}.get)
    bound = read_bounds(QueueSpec.model_validate({"lostNodeTimeout": timeout}), "Queue q").lost_node
    why, until = overdue(found, lost, bound, timestamps.parse(SINCE) + after_s)
    assert bool(why) is evicted
    if evicted:
        assert "on node n0, which has not answered since" in why
        assert "for longer than 300 s (lostNodeTimeout of Queue q)" in why
    assert (until is not None) is (after_s < 300.0)
