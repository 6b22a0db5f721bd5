"""Terms about other pods, volumes and refused nodes in recordings."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import RefusedNode
from fairlead.history.facts.snapshot_file import dump, load_facts
from fairlead.history.facts.state import State
from fairlead.history.recording.anonymise import anonymise
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import segments
from fairlead.kube import core
from tests.support.engine.neighbours import (
    HOST,
    ONE,
    POD_TERMS,
    ZONE,
    X,
    apart,
    run,
    spread,
    term,
    world,
)
from tests.support.engine.objects import gang
from tests.support.history import record


@pytest.mark.parametrize("seed", range(60, 80))
def test_a_recording_holds_all_that_the_decision_depends_on(seed: int):
    random = Random(seed)
    where = world("aabb")
    for _ in range(4):
        run(where, f"n{random.randrange(4)}", {"app": random.choice("xyz")}, **random.choice(POD_TERMS[:5]))
    gangs = [
        gang(f"g{n}", random.randint(1, 4), ONE, labels={"app": random.choice("xyz")}, pod=random.choice(POD_TERMS))
        for n in range(3)
    ]
    snapshot = where.snapshot(*gangs)
    facts, now = load_facts(dump(snapshot, 5.0))
    state = State()
    state.apply(facts)
    assert decide(state.snapshot(), now) == decide(snapshot, 5.0)


def test_an_anonymised_recording_has_no_name_of_the_terms_and_decides_the_same(tmp_path: Path):
    def day() -> None:
        where = world("aabb")
        run(where, "n0", {"app": "tenant-a"}, **apart(term(ZONE, "tenant-b")))
        one = gang("secret", 2, ONE, labels={"app": "tenant-b", "team": "red"}, pod=apart(term(HOST, "tenant-b")))
        two = gang("other", 3, ONE, labels=X, pod=spread("example.org/rack", selector={"matchLabels": {"team": "red"}}))
        rule = core.NodeSelectorRequirement(key="example.org/rack", operator="In", values=("rack-7",))
        volume = core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_expressions=(rule,)),))
        needs = replace(two.members[0].needs, volumes=(volume,))
        refused = (RefusedNode(node="n3", until=9.0, why="no"),)
        two = replace(two, members=tuple(replace(each, needs=needs) for each in two.members), refused=refused)
        where.decide(one, two)

    (directory,) = record(day, tmp_path / "day")
    found = anonymise([directory], tmp_path / "out", b"key")
    assert (found.decisions, found.alike) == (1, 1)
    assert list(differences(Reader([tmp_path / "out"]), Counts())) == []
    text = "".join(gzip.decompress(path.read_bytes()).decode() for _, path in segments(tmp_path / "out"))
    for name in ("tenant-a", "tenant-b", "red", "rack-7", "example.org", "secret", '"n3"'):
        assert name not in text
