"""A statement: rolled back to a checkpoint, ledger and queues are as they were there, whatever was tried since."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.plan.session import Memory, Session
from fairlead.engine.queues.statement import Statement
from fairlead.engine.reclaim.eviction_policy import VictimPolicy
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import PodRef
from tests.support.engine.examples import examples
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World

SLICE = claim_spec(device_request(1, device_class=MIG))
PATIENT = settings(max_examples=examples(60), deadline=None)


def full_world() -> tuple[World, list[GangRequest]]:
    """Two nodes, one cut into MIG slices, on which gangs of two queues run, one of them elastic; and gangs that wait."""
    world = World()
    world.add_node("plain", [gpu(minor) for minor in range(4)])
    devices, counters = mig_gpu(0)
    world.add_node("mig", devices, counters=[counters])
    world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"', measure="Share"),)
    world.queues = tuple(QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", deserved=2),)) for name in "ab")
    running = [
        gang("elastic", 2, claim_spec(device_request()), queue="a"),
        with_uids_of_claims(gang("pair", 1, claim_spec(device_request(2)), queue="a")),
        gang("slices", 2, SLICE, queue="b"),
        gang("shared", 2, SLICE, shared=True, queue="b"),
    ]
    assert not world.carry_out(world.decide(*running), running)
    return world, [gang("one", 1, claim_spec(device_request()), queue="b"), gang("cut", 2, SLICE, queue="a")]


def with_uids_of_claims(each: GangRequest) -> GangRequest:
    """Its pods have the UIDs of their claims. A cluster's are unique; a snapshot that a program makes may name both alike."""
    members = (
        replace(member, pod=PodRef(member.pod.namespace, member.pod.name, member.claims[0])) for member in each.members
    )
    return replace(each, members=tuple(members))


def state(session: Session, statement: Statement) -> dict[str, Any]:
    """All that a statement may change, without counts that are zero."""
    ledger = {name: nonzero(getattr(statement.ledger, name)) for name in vars(statement.ledger)}
    queues = {name: (nonzero(queue.used), nonzero(queue.releasing), queue.devices) for name, queue in tree(session)}
    return {"ledger": ledger, "queues": queues}


def tree(session: Session) -> list[tuple[str, Any]]:
    return sorted(session.tree.queues.items())


def nonzero(value: Any) -> Any:
    match value:
        case dict():
            return {key: left for key, each in value.items() if (left := nonzero(each))}
        case list():
            return [nonzero(each) for each in value] if any(nonzero(each) for each in value) else []
        case set():
            return frozenset(value)
    return value


class Trial:
    """A decision on `full_world`; `change` draws a change and makes it."""

    def __init__(self) -> None:
        world, waiting = full_world()
        self.session = Session(world.snapshot(*waiting), 100.0, Memory())
        self.cluster = self.session.pipelined
        self.statement = self.cluster.statement
        self.policy = VictimPolicy(self.cluster, self.session.candidates, ())
        self.evicted: list[Any] = []

    def change(self, data: st.DataObject) -> None:
        statement = self.statement
        match data.draw(st.sampled_from(["evict", "spare", "place", "hold", "charge"])):
            case "evict" if left := [unit for unit in self.session.candidates.units if unit not in self.evicted]:
                unit = data.draw(st.sampled_from(left))
                self.policy.evict(unit)
                self.evicted.append(unit)
            case "spare" if self.evicted:
                self.policy.spare(self.evicted.pop(data.draw(st.integers(0, len(self.evicted) - 1))))
            case "place":
                pending = data.draw(st.sampled_from(self.session.pending.gangs))
                result = self.cluster.domains.place(pending.gang, pending.units, StepBudget(1000), spread=False)
                if result.status is SearchStatus.FOUND:
                    statement.allocated(result.placed)
                    if data.draw(st.booleans()):
                        held = statement.hold(result.placed)
                        statement.unhold(held)
            case _:
                queue = self.session.tree.queues[data.draw(st.sampled_from("ab"))]
                statement.do(queue.charge, {"gpu": data.draw(st.integers(1, 3))}, 1)


@given(st.data())
@PATIENT
def test_rolled_back_to_a_checkpoint_everything_is_as_it_was_there(data: st.DataObject):
    trial = Trial()
    marks: list[tuple[int, dict[str, Any], list[Any]]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            marks.append((trial.statement.checkpoint(), state(trial.session, trial.statement), list(trial.evicted)))
        elif data.draw(st.booleans()) and marks:
            mark, before, trial.evicted = marks.pop()
            trial.statement.rollback(mark)
            assert state(trial.session, trial.statement) == before
        trial.change(data)
    for mark, before, _ in reversed(marks):
        trial.statement.rollback(mark)
        assert state(trial.session, trial.statement) == before


def test_a_pod_with_the_uid_of_its_claim_is_counted_apart_from_it():
    trial = Trial()
    pair = next(unit for unit in trial.session.candidates.units if unit.gang.name == "pair")
    before = state(trial.session, trial.statement)
    trial.policy.evict(pair)
    ledger = trial.statement.ledger
    assert sum(ledger.releasing.values()) == 2
    assert {pair.members[0].pod.uid} in ledger.releasing_pods.values()
    trial.statement.rollback(0)
    assert state(trial.session, trial.statement) == before


@given(st.data())
@PATIENT
def test_what_was_committed_is_not_rolled_back(data: st.DataObject):
    trial = Trial()
    trial.change(data)
    trial.statement.commit()
    committed = state(trial.session, trial.statement)
    trial.change(data)
    trial.statement.rollback(0)
    assert state(trial.session, trial.statement) == committed
