"""Nodes on which kube-scheduler refused a gang are not chosen for it, nor is anything evicted for a place there."""

from __future__ import annotations

from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import RefusedNode
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import QueueSpec
from fairlead.history.facts.snapshot_file import dump, load_facts
from fairlead.history.facts.state import State
from tests.support.engine.neighbours import (
    ONE,
    reason,
    world,
)
from tests.support.engine.objects import gang
from tests.support.engine.world import nodes_of


class TestRefusedNodes:
    REFUSED = (RefusedNode(node="n0", until=900.0, why="0/2 nodes are available"),)

    def test_a_refused_node_is_not_chosen_however_well_it_looks(self):
        assert nodes_of(world("ab").decide(gang("g", 1, ONE)), "g") == ["n0"]
        assert nodes_of(world("ab").decide(gang("g", 1, ONE, refused=self.REFUSED)), "g") == ["n1"]

    def test_where_no_other_node_would_do_the_gang_waits_and_says_until_when(self):
        found = reason(world("a").decide(gang("g", 1, ONE, refused=self.REFUSED)), "g")
        assert (found.code, found.could_ever_fit) == (Code.NODES_REFUSED, True)
        assert "such as n0 (0/2 nodes are available); not chosen again until 1970-01-01T00:15:00Z" in found.message
        assert [(each.need, each.nodes) for each in found.nodes] == [("refused by kube-scheduler", 1)]

    def test_nothing_is_evicted_for_a_place_there(self):
        where = world("a", gpus=1)
        where.queues = (QueueSpec(name="q"),)
        low = gang("low", 1, ONE, queue="q")
        where.carry_out(where.decide(low), [low])
        assert where.decide(gang("high", 1, ONE, queue="q", priority=1)).evictions
        assert not where.decide(gang("high", 1, ONE, queue="q", priority=1, refused=self.REFUSED)).evictions

    def test_it_is_in_the_recording(self):
        where = world("a")
        snapshot = where.snapshot(gang("g", 1, ONE, refused=self.REFUSED))
        facts, now = load_facts(dump(snapshot, 5.0))
        state = State()
        state.apply(facts)
        assert state.snapshot().gangs[0].refused == self.REFUSED
        assert decide(state.snapshot(), now) == decide(snapshot, 5.0)
