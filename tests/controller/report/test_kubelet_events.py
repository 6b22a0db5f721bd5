"""What kubelet says in Events alone of pods that do not start: the gang's reason, whoever wrote it, and nothing more."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fairlead.controller.book.book import Book, Looks
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.gang_phase import SAID_MAX
from fairlead.controller.report.kubelet_events import (
    FIRST_S,
    LISTED_MAX,
    LOOKS_MAX,
    STALE_S,
    TURN_S,
    KubeletEvents,
    refusal,
)
from fairlead.kube import core, errors, timestamps
from fairlead.kube.timing import Time
from tests.controller.conftest import Bench
from tests.controller.gang_views import NOW, Objects, claim, pod, view

REFUSED = "FailedPrepareDynamicResources"


def event(reason: str, age_s: float = 1.0, message: str = "driver not registered", **more: Any) -> core.Event:
    said = {"reason": reason, "message": message, "lastTimestamp": timestamps.seconds(NOW - age_s), **more}
    return msgspec.convert(said, core.Event)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], ""),
        ([event(REFUSED)], f"{REFUSED}: driver not registered"),
        ([event(REFUSED, 9), event("FailedMount", 3, "no volume")], "FailedMount: no volume"),
        ([event(REFUSED, 9), event("Pulling", 3)], ""),
        ([event(REFUSED, 3), event("Pulling", 9)], f"{REFUSED}: driver not registered"),
        ([event(REFUSED, STALE_S + 2)], ""),
        ([event("FailedScheduling"), event("Gone")], ""),
        ([event(REFUSED, lastTimestamp=None, eventTime=timestamps.micro(NOW - 1))], f"{REFUSED}: driver not registered"),
        ([event(REFUSED, lastTimestamp="yesterday")], ""),
        ([core.Event()], ""),
    ],
    ids=[
        "none", "refused", "the latest", "begun since", "begun before", "old", "others'", "new form", "no time", "empty",
    ],
)  # fmt: skip
def test_the_latest_refusal_counts_until_containers_are_begun(events: list[core.Event], said: str) -> None:
    assert refusal(events, NOW) == said


def test_what_a_tenant_forges_is_cut_off_and_moves_no_cursor() -> None:
    said = refusal([event("FailedMount", message="gang is evicted\x1b[2J\nqueue: other " + "x" * 900)], NOW)
    assert said.startswith("FailedMount: gang is evicted")
    assert len(said) <= SAID_MAX
    assert said.isprintable()


def gang_on_a_node(phase: str = "Pending") -> Gang:
    pods = [pod(f"g-{n}", gang="g", size=2, gated=False, node="n1", phase=phase, claim=f"c{n}") for n in range(2)]
    held = [claim(f"c{n}", f"g-{n}", node="n1", reserved=[f"g-{n}"]) for n in range(2)]
    made: Gang = view(*pods, objects=Objects(held))
    return made


class Answers:
    """An apiserver that counts the lists of events, and a clock that sleeps move."""

    def __init__(self, body: bytes | Exception = b'{"items": []}') -> None:
        self.body = body
        self.asked: list[tuple[float, str, Mapping[str, str]]] = []
        self.now = NOW
        self.until = NOW
        self.over = asyncio.Event()

    async def request(self, method: str, path: str, *, params: Mapping[str, str]) -> bytes:
        assert method == "GET"
        self.asked.append((self.now - NOW, path, params))
        if isinstance(self.body, Exception):
            raise self.body
        return self.body

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.until:
            self.over.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def wall(self) -> float:
        return self.now


def events_of(answers: Answers, gangs: Mapping[GangId, Gang], book: Book) -> KubeletEvents:
    time = Time(clock=answers.wall, wall=answers.wall, sleep=answers.sleep)
    return KubeletEvents(answers, book, gangs.get, time)  # type: ignore[arg-type]


async def run(found: KubeletEvents, answers: Answers, seconds: float, woken: list[str] | None = None) -> list[GangId]:
    """The gangs that were reported meanwhile; `woken` gets the pods that kubelet was to sync."""
    told, pods = list[GangId](), [] if woken is None else woken
    answers.until = NOW + seconds
    task = asyncio.create_task(
        found.run(lambda changed, _: told.extend(changed), lambda each: pods.append(each.metadata.name))
    )
    over = asyncio.create_task(answers.over.wait())
    await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task.exception()
    task.cancel()
    return told


async def looked(answers: Answers, gangs: Mapping[GangId, Gang], seconds: float) -> tuple[KubeletEvents, list[GangId]]:
    found = events_of(answers, gangs, Book())
    for gang in gangs.values():
        assert found.of(gang, NOW) is None
    return found, await run(found, answers, seconds)


async def test_events_of_one_pod_are_listed_seldom_and_none_while_it_starts_in_time() -> None:
    gang, answers = gang_on_a_node(), Answers()
    await looked(answers, {gang.id: gang}, 300)
    times = [at for at, _, _ in answers.asked]
    assert FIRST_S <= times[0] <= FIRST_S + 2 * TURN_S
    assert len(times) <= 9
    assert all(later - earlier >= FIRST_S for earlier, later in itertools.pairwise(times))
    _, path, params = answers.asked[0]
    assert (path, params["limit"]) == (f"/api/v1/namespaces/{gang.namespace}/events", str(LISTED_MAX))
    assert params["fieldSelector"] == f"involvedObject.uid={gang.members[0].uid},source=kubelet"


@pytest.mark.parametrize("becomes", [gang_on_a_node("Running"), None], ids=["it runs", "it is gone"])
async def test_nothing_is_listed_of_a_gang_that_starts_in_time(becomes: Gang | None) -> None:
    gang, answers, book = gang_on_a_node(), Answers(), Book()
    gangs = {gang.id: gang}
    found = events_of(answers, gangs, book)
    found.of(gang, NOW)
    gangs.clear()
    gangs |= {} if becomes is None else {gang.id: becomes}
    task = asyncio.create_task(found.run(lambda changed, _: None, lambda each: None))
    answers.until = NOW + 60
    for _ in range(100):
        await asyncio.sleep(0)
    task.cancel()
    assert book[gang.id].looks is None
    assert answers.asked == []


async def test_the_gang_is_reported_once_when_it_is_refused_and_again_when_it_starts() -> None:
    gang = gang_on_a_node()
    answers = Answers(
        b'{"items": [{"reason": "FailedMount", "message": "m", "lastTimestamp": "%s"}]}'
        % timestamps.seconds(NOW + 3).encode()
    )
    found, told = await looked(answers, {gang.id: gang}, 30)
    assert told == [gang.id]
    assert found.of(gang, NOW) == (gang.members[0].uid, "FailedMount: m")
    assert found.of(gang_on_a_node(phase="Running"), NOW) is None


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"items": 3}', b'{"items": [[], 1, null]}', b"[" * 100_000, errors.Forbidden("no right")],
    ids=["empty", "a list", "a number", "no objects", "nested", "forbidden"],
)
async def test_an_answer_that_cannot_be_read_says_nothing(body: bytes | Exception) -> None:
    gang = gang_on_a_node()
    answers = Answers(body)
    _, told = await looked(answers, {gang.id: gang}, 30)
    assert answers.asked
    assert told == []


async def test_one_namespaces_many_gangs_do_not_keep_another_from_its_turn() -> None:
    many = {("flood", f"g{number}"): gang_on_a_node() for number in range(500)}
    one = gang_on_a_node()
    answers = Answers()
    gangs: dict[GangId, Gang] = {**many, ("ml", "g"): one}
    book = Book()
    found = events_of(answers, gangs, book)
    for gang_id, gang in gangs.items():
        found.of(gang, NOW)
        book[gang_id].looks = Looks(NOW, FIRST_S)
    await run(found, answers, 10)
    assert len(answers.asked) <= LOOKS_MAX * 10 / TURN_S
    had = book["ml", "g"].looks
    assert had is not None
    assert had.wait_s > FIRST_S, "it had its turn"


@pytest.mark.parametrize(("reason", "times"), [(REFUSED, 4), ("FailedMount", 0)])
async def test_kubelet_is_made_to_try_again_what_it_could_not_prepare(reason: str, times: int) -> None:
    gang, woken = gang_on_a_node(), list[str]()
    said = {"reason": reason, "message": "driver not registered", "lastTimestamp": timestamps.seconds(NOW + 40)}
    answers = Answers(msgspec.json.encode({"items": [said]}))
    found = events_of(answers, {gang.id: gang}, Book())
    found.of(gang, NOW)
    await run(found, answers, 30, woken)
    assert woken == ["g-0", "g-1"] * times, "at 3, 6, 12 and 24 s"


# -- on a cluster ------------------------------------------------------------------------------------------------------


async def test_a_driver_that_is_not_registered_is_the_gangs_reason_within_seconds(bench: Bench) -> None:
    await bench.template("one", 1)
    async with bench.controller():
        for node in bench.cluster.nodes.values():
            await node.stop_driver()
        pods = await bench.gang("early", 2, template="one")
        await bench.until(lambda: bench.bound(pods), "its pods are bound")
        bound_s = time.monotonic()
        await bench.until(lambda: bench.status("early").get("reason") == "StartRefused", "the gang says so")
        assert (
            time.monotonic() - bound_s < FIRST_S + TURN_S + 5.0
        )  # and kubelet's own time, on a machine that does other things
        assert f"does not start: {REFUSED}: " in bench.status("early")["message"]
        for node in bench.cluster.nodes.values():
            await node.start_driver()
        await bench.until(lambda: bench.status("early").get("reason") == "MembersRun", "nothing is refused any more")
