"""Spans of what becomes of a gang: of which trace, below which span, in which order; with gangs as pods show them."""

import asyncio
from typing import Any

import pytest

from fairlead.api import names, trace_context
from fairlead.controller.book.book import FIELDS, Book
from fairlead.controller.gangs.claims.allocations import pod_ref
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.report.traces import LINKS_MAX, GangTraces
from fairlead.engine.types.plan import Admission, Assignment, Waiting
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import timestamps
from fairlead.kube.timing import Time
from fairlead.kube.tracing import OFF, Span
from tests.controller.conftest import Bench
from tests.controller.evictions.test_evictions import Plot, fill, plot
from tests.controller.gang_views import NOW, Objects, claim, pod, view
from tests.support.otlp import receiving

__all__ = ["plot"]

THEIRS = trace_context.parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
OURS = trace_context.begin("ml", "train", "", ratio=1.0)
MARK = EvictionMark(kind="Reclaim", at=NOW, whole=True, beneficiary="ml/other", why="above its share")


class Known:
    """Of the caches what traces read: the Gang objects."""

    def __init__(self):
        self.gangs: dict[tuple[str, str], Any] = {}

    def gang_object(self, gang_id):
        return self.gangs.get(gang_id)


class World:
    """Time, the collected spans, and a gang that goes its way. The clock began at another time than the world."""

    def __init__(self, ratio=1.0):
        self.now = NOW
        self.spans: list[Span] = []
        caches: Any = Known()
        self.known = caches
        time = Time(clock=lambda: self.now - 7.0, wall=lambda: self.now, sleep=asyncio.sleep)
        self.traces = GangTraces(self, caches, Book(), ratio=ratio, time=time)

    def add(self, span):
        self.spans.append(span)

    def later(self, seconds):
        self.now += seconds
        return self.now - 7.0

    def decide(self, gang, waiting=None):
        began, ended = self.later(0.0), self.later(0.25)
        assignments = tuple(Assignment(pod=pod_ref(each), node="n1") for each in gang.gated)
        admission = Admission(namespace="ml", name=gang.name, uid="u", queue="q", assignments=assignments, claims=())
        self.traces.decided(gang, admission, waiting, (began, ended))

    def commit(self, gang, why=""):
        began = self.later(0.5)
        self.later(1.0)
        written = None if why else self.now
        self.later(1.0)
        self.traces.committed(gang.id, began=began, written_s=written, why=why)

    def run(self, gang, phase="Running", seconds=5.0):
        self.later(seconds)
        self.traces.seen(gang, self.now)

    def named(self, name):
        return [each for each in self.spans if each.name == name]

    def one(self, name):
        (found,) = self.named(name)
        return found


def members(*pods, gang="train", gated=True, phase="Pending", context: object = OURS, **more):
    annotations = {names.GANG: gang, names.GANG_SIZE: str(len(pods))}
    annotations |= {names.TRACEPARENT: str(context)} if context else {}
    if gated:
        return view(*(pod(name, annotations=annotations, **more) for name in pods))
    held = [claim(f"c-{name}", name, node="n1", reserved=[name]) for name in pods]
    there = {"gated": False, "phase": phase, "node": "n1", "annotations": annotations, **more}
    return view(*(pod(name, claim=f"c-{name}", **there) for name in pods), objects=Objects(claims=held))


def through(world, *pods, **more):
    """A gang from its first sight to its containers."""
    gated = members(*pods, **more)
    world.traces.seen(gated, world.now)
    world.decide(gated)
    world.commit(gated)
    world.run(members(*pods, gated=False, phase="Running", **more))
    return gated


def test_the_spans_of_a_gang_follow_one_another_below_the_gangs():
    world = World()
    through(world, "a", "b")
    gang, wait, decide = world.one("gang"), world.one("wait"), world.one("decide")
    commit, start = world.one("commit"), world.one("start")
    assert gang.at == OURS
    assert gang.parent is None
    assert {each.parent for each in (wait, decide, commit, start)} == {OURS.span_id}
    assert (gang.began_s, wait.began_s) == (NOW - 60, NOW - 59), "the apiserver's times are whole seconds"
    times = [wait.ended_s, decide.began_s, decide.ended_s, commit.began_s, commit.ended_s, start.began_s]
    assert times == [NOW, NOW, NOW + 0.25, NOW + 0.75, NOW + 2.75, NOW + 2.75]
    steps = [world.one("write claims"), world.one("release pods")]
    assert [(each.began_s, each.ended_s) for each in steps] == [(NOW + 0.75, NOW + 1.75), (NOW + 1.75, NOW + 2.75)]
    assert {each.parent for each in steps} == {commit.at.span_id}
    assert gang.ended_s == start.ended_s
    assert len({each.at.span_id for each in world.spans}) == len(world.spans)


def test_a_gang_that_starts_within_the_second_of_its_creation_has_no_span_before_it():
    world = World()
    world.now = NOW - 60 + 0.3
    gang = members("a")
    world.traces.seen(gang, world.now)
    world.decide(gang)
    assert world.one("wait").began_s == pytest.approx(NOW - 59.7)


def test_the_wait_says_why_and_where_in_the_queue():
    world, gang = World(), members("a")
    reason = Reason(code=Code.NO_DEVICES, message="No GPU is free" + "!" * 5_000)
    world.decide(gang, Waiting(namespace="ml", name="train", uid="u", queue="q", position=7, place=3, reason=reason))
    attributes = world.one("wait").attributes
    assert attributes["fairlead.reason"] == Code.NO_DEVICES.value
    assert attributes["fairlead.position"] == 3
    assert attributes["fairlead.queue"] == "q"
    assert len(str(attributes["fairlead.reason.message"])) == 1_000


def test_claims_that_are_made_for_a_gang_name_its_span():
    world, gang = World(), members("a", context=THEIRS)
    assert world.traces.annotations(gang) == {}, "it was never seen"
    world.decide(gang)
    (text,) = world.traces.annotations(gang).values()
    world.traces.gone(gang.id)
    assert trace_context.parse(text) == world.one("gang").at
    assert world.one("gang").parent == THEIRS.span_id


def test_two_gangs_of_one_submission_are_two_spans():
    world = World()
    for name in ("a", "b"):
        through(world, f"{name}-0", gang=name, context=THEIRS)
    first, second = world.named("gang")
    assert first.at.trace_id == second.at.trace_id == THEIRS.trace_id
    assert first.at.span_id != second.at.span_id
    assert first.parent == second.parent == THEIRS.span_id


@pytest.mark.parametrize("text", [None, " ", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 100_000])
def test_without_a_context_that_can_be_read_a_gang_has_the_trace_that_the_webhook_would_have_given_it(text):
    world = World()
    through(world, "a", "b", context=text)
    assert world.one("gang").at == OURS


def test_members_of_other_traces_are_linked_and_the_oldest_members_counts():
    texts = [str(trace_context.begin(str(number), ratio=1.0)) for number in range(40)]
    pods = [
        pod(f"p{number:02}", gang="train", size=40, annotations={names.GANG: "train", names.TRACEPARENT: text})
        for number, text in enumerate(texts)
    ]
    world, gang = World(), view(*pods)
    world.traces.seen(gang, world.now)
    world.traces.gone(gang.id)
    made = world.one("gang")
    assert made.at == trace_context.begin("0", ratio=1.0)
    assert len(made.links) == LINKS_MAX
    assert made.at.trace_id not in {link.trace_id for link in made.links}


def test_an_admission_that_fails_is_an_error_and_the_gang_waits_again():
    world, gang = World(), members("a")
    world.traces.seen(gang, world.now)
    world.decide(gang)
    world.commit(gang, why="the claim is gone")
    assert world.one("commit").error == "the claim is gone"
    failed_s = world.now
    world.later(10)
    world.decide(gang)
    world.commit(gang)
    world.run(members("a", gated=False, phase="Running"))
    waits = world.named("wait")
    assert len(waits) == 2
    assert (waits[1].began_s, waits[1].ended_s) == (failed_s, failed_s + 10)
    assert world.one("gang").error == ""


def test_a_gang_that_is_withdrawn_and_one_that_is_rolled_back_end_with_an_error():
    world, gang = World(), members("a")
    world.traces.seen(gang, world.now)
    world.later(4)
    world.traces.gone(gang.id)
    assert world.one("gang").error == "it is gone before it ran"
    assert world.one("wait").ended_s == world.now
    world.traces.gone(gang.id)

    world = World()
    world.decide(gang)
    world.commit(gang)
    world.run(members("a", gated=False, deletionTimestamp="2027-01-15T08:00:00Z"))
    assert world.one("gang").error == "its pods are gone before all of them ran"
    assert world.named("start") == []


def test_a_gang_that_was_evicted_has_a_second_span_below_the_first():
    world = World()
    through(world, "a", "b")
    running = members("a", "b", gated=False, phase="Running")
    world.traces.eviction_begun(running.id)
    world.later(30)
    world.traces.eviction_ended(running, MARK, 2)
    evict = world.one("evict")
    assert (evict.parent, evict.ended_s - evict.began_s) == (OURS.span_id, 30)
    assert evict.attributes["fairlead.eviction.for"] == "ml/other"
    through(world, "a2", "b2")
    first, second = world.named("gang")
    assert second.parent == first.at.span_id
    assert second.at.trace_id == first.at.trace_id
    assert world.named("wait")[1].parent == second.at.span_id


def test_another_leader_knows_of_an_eviction_by_the_gang_object():
    world = World()
    at = timestamps.seconds(world.now)
    world.known.gangs["ml", "train"] = {"status": {"lastEviction": {"at": at, "since": at, "what": "", "why": ""}}}
    through(world, "a")
    assert world.one("gang").parent == OURS.span_id


def test_a_new_leader_ends_the_trace_of_a_gang_that_another_released():
    world = World()
    world.traces.seen(members("a", "b", gated=False, phase="Running"), world.now)
    assert world.spans == []
    world.traces.seen(members("a", "b", gated=False, phase="Pending"), world.now)
    world.run(members("a", "b", gated=False, phase="Running"))
    assert [each.name for each in world.spans] == ["start", "gang"]
    world.run(members("a", "b", gated=False, phase="Running"))
    assert len(world.spans) == 2


def test_what_is_not_sampled_makes_no_span():
    for world, context in ((World(ratio=0.0), None), (World(), trace_context.begin("ml", ratio=0.0))):
        gang = through(world, "a", context=context)
        world.traces.eviction_ended(gang, MARK, 1)
        assert world.spans == []


def test_without_traces_nothing_is_kept():
    book = Book()
    nothing: Any = None
    time = Time(clock=lambda: 0.0, wall=lambda: 0.0, sleep=asyncio.sleep)
    traces, gang = GangTraces(OFF, nothing, book, ratio=1.0, time=time), members("a")
    traces.seen(gang, 0.0)
    traces.eviction_begun(gang.id)
    traces.eviction_ended(gang, MARK, 1)
    traces.committed(gang.id, began=0.0, written_s=None, why="")
    traces.gone(gang.id)
    assert traces.annotations(gang) == {}
    assert not any(book.all(field) for field in FIELDS)


async def test_an_eviction_on_the_sandbox_is_part_of_its_gangs_trace(bench: Bench, plot: Plot):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="fairlead[otel] is not installed")
    plot.victims = {"new": ["old"]}
    async with receiving() as receiver:
        async with bench.controller(otlp_endpoint=receiver.url):
            await fill(bench)
            new = await bench.gang("new", 2, template="eight")
            await bench.until(lambda: bench.status("new").get("phase") == "Running", "the other one runs")
            assert bench.running(new)
        gangs = {each.attributes["fairlead.gang.name"]: each for each in receiver.of(name="gang")}
        (evict,) = receiver.of(name="evict")
        assert evict.trace == gangs["old"].trace != gangs["new"].trace
        assert evict.attributes["fairlead.eviction.for"] == "ml/new"
        assert gangs["old"].ended <= evict.began <= evict.ended <= gangs["new"].ended
        (wait,) = receiver.of(name="wait", trace=gangs["new"].trace)
        assert wait.began <= evict.began
        assert wait.attributes["fairlead.reason"]
