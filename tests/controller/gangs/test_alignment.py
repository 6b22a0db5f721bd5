"""Aligned gangs: what pods say, what the engine is asked for, and what released members hold."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.align import Alignment, alignments
from fairlead.controller.gangs.membership.gangs import gang_spec
from tests.controller.gang_views import Objects, asked, claim, pod, view

RAIL = "gpu.fairlead.dev/rail"


def member(name: str, *, align: str | None = RAIL, labels: dict[str, str] | None = None, **more: Any) -> Any:
    notes = {names.GANG: "g", names.GANG_SIZE: "3"} | ({names.ALIGN: align} if align else {})
    return pod(name, annotations=notes | more.pop("notes", {}), labels=labels or {}, **more)


def test_the_engine_is_asked_for_what_pods_say():
    gang = view(member("a"), member("b", align=None), member("c"))
    request = asked(gang)
    assert request.align == RAIL
    assert gang_spec(gang)["align"] == RAIL


def test_subgroups_count_where_they_are_compared_though_they_have_no_topology():
    notes = {names.SUBGROUP_SIZE: "2"}
    pods = [
        member(f"p{n}", align=f"{RAIL} per subgroup", notes=notes | {names.COMPLETION_INDEX: str(n)}) for n in range(4)
    ]
    request = asked(view(*pods))
    assert [each.subgroup for each in request.members] == ["0", "0", "1"]


def test_a_member_that_joins_has_the_values_of_those_that_run():
    parts = [{names.RAY_GROUP: f"part-{n}"} for n in range(2)]
    running = [
        member(f"p{n}", labels=parts[n], gated=False, node=f"n{n}", claim=f"c{n}", phase="Running") for n in range(2)
    ]
    held = [claim(f"c{n}", f"p{n}", node=f"n{n}", reserved=[f"p{n}"]) for n in range(2)]
    request = asked(view(*running, member("late"), objects=Objects(claims=held)))
    assert [(each.worker_group, [of.name for of in each.claims]) for each in request.placed_members] == [
        ("part-0", ["c0"]),
        ("part-1", ["c1"]),
    ]
    assert all(of.allocation is not None for each in request.placed_members for of in each.claims)


class TestTheText:
    def test_every_part_of_it(self):
        text = f"{RAIL}, dra.net/alias=distinct of nic+card per worker-group, {names.ORDINAL} per subgroup"
        assert alignments(text) == (
            Alignment(RAIL),
            Alignment("dra.net/alias", distinct=True, requests=("nic", "card"), scope="worker-group"),
            Alignment(names.ORDINAL, scope="subgroup"),
        )
        assert alignments(", ".join(map(str, alignments(text)))) == alignments(text)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("rail", "'rail' is no attribute of a device: write its domain, too"),
            (f"{RAIL}=equal", "'equal' is unknown; write =same or =distinct"),
            (f"{RAIL} of", "'of' is not understood"),
            (f"{RAIL} of GPU", "'GPU' is no name of a request"),
            (f"{RAIL} per node", "'per node' is not understood"),
            (f"{RAIL},", "has an empty entry"),
            ("", "has an empty entry"),
            (f"{RAIL}, {RAIL} of gpu", "is named twice for the same devices"),
            (", ".join(f"a.b/c{n}" for n in range(9)), "9 entries are named, and at most 8 count"),
            ("a.b/c" * 5000, "and at most 4096 are read"),
        ],
    )
    def test_what_cannot_be_read_says_what_to_write(self, text: str, said: str):
        with pytest.raises(ValueError, match=said.replace("(", "\\(")):
            alignments(text)
