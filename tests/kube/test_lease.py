"""One leader at a time: over a fake that holds one lease with resourceVersions, in virtual time."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.coordination import Lease
from fairlead.kube.lease import LeaderLease, LeaseTerms
from tests.support.kube import VirtualTime, settle


class FakeLeases:
    """get, create and merge patch of one lease; refuses a stale resourceVersion; `down` makes it unreachable."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down: set[str] = set()  # identities that cannot reach it
        self.answered_after_s = 0.0  # patches are written at once

    def as_seen_by(self, identity: str) -> Client:
        return cast("Client", _View(self, identity))

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


class _View:
    def __init__(self, leases: FakeLeases, identity: str) -> None:
        self.leases = leases
        self.identity = identity

    def _check(self) -> None:
        if self.identity in self.leases.down:
            raise errors.Unreachable("no route")

    def _read(self) -> Lease:
        return msgspec.convert(self.leases.lease, Lease)

    async def get(self, resource, name, namespace=None) -> Lease:
        self._check()
        if self.leases.lease is None:
            raise errors.NotFound("no lease", status=404)
        return self._read()

    async def create(self, resource, obj, namespace=None) -> Lease:
        self._check()
        if self.leases.lease is not None:
            raise errors.AlreadyExists("there is one", status=409)
        self.leases.version += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.leases.version)}
        self.leases.lease = {"metadata": metadata, "spec": dict(obj["spec"])}
        return self._read()

    async def patch(self, resource, name, body, *, namespace=None) -> Lease:
        self._check()
        if self.leases.lease is None:
            raise errors.NotFound("no lease", status=404)
        if body["metadata"]["resourceVersion"] != self.leases.lease["metadata"]["resourceVersion"]:
            raise errors.Conflict("stale", status=409)
        self.leases.version += 1
        self.leases.lease["metadata"]["resourceVersion"] = str(self.leases.version)
        self.leases.lease["spec"] |= body["spec"]
        written = self._read()
        if self.leases.answered_after_s:
            await self.leases.time.sleep(self.leases.answered_after_s)
        return written


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def leases(time: VirtualTime) -> FakeLeases:
    return FakeLeases(time)


@pytest.fixture
def candidate(leases: FakeLeases, time: VirtualTime):
    def make(identity: str, *, clock_offset: float = 0.0, **terms: float) -> LeaderLease:
        return LeaderLease(
            leases.as_seen_by(identity),
            namespace="fairlead-system",
            name="controller",
            identity=identity,
            clock=time.clock,
            wall=lambda: time.now + clock_offset,
            sleep=time.sleep,
            terms=LeaseTerms(**terms),
        )

    return make


async def test_the_first_leads_and_the_second_waits_until_it_is_released(leases, time, candidate):
    first, second = candidate("one"), candidate("two")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await time.advance(120)
    assert first.held
    assert not waiting.done()
    await first.release()
    assert not first.held
    await time.advance(5)
    await waiting
    assert (leases.holder, second.held) == ("two", True)
    await second.release()
    assert leases.holder == ""


async def test_a_standby_that_looks_often_follows_a_leader_that_stops_within_that_time(leases, time, candidate):
    first, second = candidate("one"), candidate("two", poll_s=0.5)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await time.advance(30)
    await first.release()
    await time.advance(0.6)
    await waiting
    assert (leases.holder, second.held) == ("two", True)


async def test_a_leader_that_stops_while_a_renewal_is_on_its_way_releases_the_lease(leases, time, candidate):
    first = candidate("one")
    await first.acquire()
    await time.advance(1)
    leases.version += 1  # it arrives, and its answer is not awaited
    leases.lease["metadata"]["resourceVersion"] = str(leases.version)
    await first.release()
    assert leases.holder == ""


async def test_a_leader_that_dies_is_replaced_after_its_duration_whatever_the_wall_clocks_say(leases, time, candidate):
    first, second = candidate("one"), candidate("two", clock_offset=-86_400)
    await first.acquire()
    first._renewal.cancel()  # killed: renews no more, releases nothing
    await settle()
    waiting = asyncio.create_task(second.acquire())
    await time.advance(14)
    assert not waiting.done()
    await time.advance(5)
    await waiting
    assert leases.holder == "two"
    assert leases.lease["spec"]["leaseTransitions"] == 1
    await second.release()


async def test_a_leader_that_is_cut_off_stops_before_another_may_begin(leases, time, candidate):
    first, second = candidate("one"), candidate("two")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await time.advance(3)
    leases.down.add("one")
    for _ in range(200):
        await time.advance(0.1)
        assert not (first.held and second.held)
    assert first.lost.is_set()
    assert waiting.done()
    await first.release()
    assert leases.holder == "two"
    await second.release()


async def test_a_leader_whose_renewals_are_answered_late_stops_before_another_may_begin(leases, time, candidate):
    """The others count from the renewal that they saw, and so does it: not from the answer."""
    first, second = candidate("one"), candidate("two", poll_s=0.5)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    leases.answered_after_s = 7.0
    await time.advance(10)
    assert first.held, "it was renewed at 2 s, and was told at 9 s"
    leases.answered_after_s = 0.0
    leases.down.add("one")
    for _ in range(100):
        await time.advance(0.1)
        assert not (first.held and second.held)
    assert (first.lost.is_set(), waiting.done(), leases.holder) == (True, True, "two")
    await second.release()


async def test_a_standby_with_a_shorter_duration_waits_for_that_of_the_leader(leases, time, candidate):
    first, second = candidate("one", duration_s=60, renew_deadline_s=40, retry_s=20), candidate("two")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await time.advance(120)
    assert (first.held, waiting.done(), leases.holder) == (True, False, "one")
    await first.release()
    await time.advance(3)
    await waiting
    await second.release()


async def test_a_lease_taken_by_another_is_lost_at_once(leases, time, candidate):
    first = candidate("one")
    await first.acquire()
    leases.lease["spec"]["holderIdentity"] = "usurper"
    leases.lease["metadata"]["resourceVersion"] = "99"
    await time.advance(3)
    assert first.lost.is_set()
    assert not first.held
    await first.release()
    assert leases.holder == "usurper"


async def test_a_short_silence_of_the_apiserver_does_not_cost_the_lease(leases, time, candidate):
    first = candidate("one")
    await first.acquire()
    leases.down.add("one")
    await time.advance(6)
    leases.down.clear()
    await time.advance(60)
    assert first.held
    assert not first.lost.is_set()
    await first.release()


async def test_a_write_whose_answer_was_lost_is_recognised_as_our_own(leases, time, candidate):
    first = candidate("one")
    await first.acquire()
    leases.lease["metadata"]["resourceVersion"] = "50"  # our renewal arrived, its answer was lost
    await time.advance(30)
    assert first.held
    await first.release()


def test_times_that_could_let_two_lead_are_refused(leases):
    with pytest.raises(ValueError, match="two could lead"):
        LeaderLease(leases.as_seen_by("x"), namespace="n", name="l", identity="x", terms=LeaseTerms(5, 10))


async def test_a_lease_that_was_not_held_for_a_moment_ends_its_term_and_is_given_back(leases, time, candidate):
    """What was refused meanwhile is left half done: only a new term looks for that. The process was paused, say."""
    first, second = candidate("one"), candidate("two", poll_s=0.5)
    await first.acquire()
    await settle()
    time.now += 11.0  # nothing ran for so long
    assert not first.held
    await time.advance(0)
    assert first.lost.is_set()
    assert first.held, "writes under way may be finished"
    waiting = asyncio.create_task(second.acquire())
    await first.release()
    await time.advance(1)
    await waiting
    assert (leases.holder, second.transitions) == ("two", 1)
    await second.release()


async def test_a_deleted_lease_is_lost(leases, time, candidate):
    first = candidate("one")
    await first.acquire()
    leases.lease = None
    await time.advance(3)
    assert first.lost.is_set()
    await first.release()
