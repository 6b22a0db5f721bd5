"""Terms about other pods, volumes and refused nodes in recordings."""

from __future__ import annotations

import gzip
from pathlib import Path

from msgspec.structs import replace

from fairlead.engine.types.gangs import RefusedNode
from fairlead.history.recording.anonymise import anonymise
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import segments
from fairlead.kube import core
from tests.support.engine.neighbours import (
    HOST,
    ONE,
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
