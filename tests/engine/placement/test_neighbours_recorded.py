"""Terms about other pods, volumes and refused nodes in recordings and proofs."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fairlead.api.certificate import NotProven, Place
from fairlead.engine.plan.decide import decide
from fairlead.engine.prove.prover import Prover
from fairlead.engine.types.gangs import RefusedNode
from fairlead.evidence import snapshot_file as evidence
from fairlead.history.facts.snapshot_file import dump, load_facts
from fairlead.history.facts.state import State
from fairlead.history.recording.anonymise import anonymise
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.writer import segments
from fairlead.history.replay.verify import Counts, differences
from fairlead.kube import core
from fairlead.verify.check import check
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


def test_pods_that_only_other_pods_keep_away_have_no_certificate():
    """A proof by devices and room would be wrong: the verifier does not know the terms."""
    where = world("ab")
    prover = Prover(where.snapshot(gang("g", 3, ONE, labels=X, pod=apart(term(ZONE)))), 0.0)
    assert prover.certificate("ml/g", "digest").because == NotProven(code="PodConstraints")


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


def test_a_proof_by_devices_verifies_beside_terms_and_refused_nodes():
    """They only make fewer places: what devices forbid is forbidden with them."""
    where = world("ab")
    run(where, "n0", X, **apart(term(ZONE)))
    full = [gang(f"full-{number}", 8, ONE) for number in range(2)]
    where.carry_out(where.decide(*full), full)
    one = gang("g", 1, ONE, labels=X, pod=spread(ZONE), refused=(RefusedNode(node="n1", until=5.0),))
    snapshot = where.snapshot(one)
    facts, digest = evidence.read(dump(snapshot, 1.0))
    certificate = Prover(snapshot, 1.0).certificate("ml/g", digest)
    assert isinstance(certificate.because, Place)
    check(certificate, facts)
