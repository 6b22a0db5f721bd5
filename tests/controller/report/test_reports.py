"""What is not written: short waits of gangs of one, and admissions that end within seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec
import pytest

from fairlead.api import claim_sources, names, texts
from fairlead.api.claim_sources import ClaimSource
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.held.placement import LevelPlacement
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.report.reporter import ADMITTING_S, FIRST_DELAY_S, WAITED_S
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, timestamps
from fairlead.ui.model.gangs import line
from tests.controller.report.report_bench import Setup, running, waits

SOURCE = ClaimSource(claim="g-gpu-x", template="one", uid="u")
ADMITTING = SchedulingState(admitting=True)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with running() as made:
        yield made


def gang(*, stage: Stage = Stage.GATED, phase: str = "Pending", solo: bool = True) -> Gang:
    """One pod whose claim the webhook named; not `solo`: it names its gang."""
    recorded = claim_sources.annotation({"gpu": SOURCE}, namespace="ml", owner_uid="", key=b"")
    annotations: Mapping[str, str] = {names.CLAIM_SOURCES: recorded}
    body = {
        "metadata": {"name": "g", "namespace": "ml", "uid": "u", "annotations": annotations},
        "status": {"phase": phase},
    }
    member = Member(pod=msgspec.convert(body, core.Pod), stage=stage)
    return Gang(id=("ml", "g"), size=1, members=(member,), solo=solo)


async def test_a_gang_of_one_that_does_not_wait_is_not_written(setup: Setup):
    setup.reporter.gang(gang(), SchedulingState())
    setup.reporter.gang(gang(), ADMITTING)
    await setup.time.advance(WAITED_S)
    setup.reporter.gang(gang(stage=Stage.RELEASED), SchedulingState())
    await setup.time.advance(60.0)
    setup.reporter.gang(gang(stage=Stage.RELEASED, phase="Running"), SchedulingState())
    await setup.time.advance(60.0)
    assert setup.objects.written == {}
    assert +setup.reporter.phases == {"Running": 1}


async def test_a_gang_of_one_that_waits_for_devices_is_written_after_a_moment(setup: Setup):
    setup.reporter.gang(gang(), waits(gang(), Code.NO_DEVICES, "none is free"))
    await setup.time.advance(WAITED_S - 0.1)
    assert setup.objects.written == {}
    await setup.time.advance(0.2)
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "DevicesInUse"
    setup.reporter.gang(gang(stage=Stage.RELEASED, phase="Running"), SchedulingState())
    await setup.time.advance(1.0)
    assert setup.objects.gangs["ml/g"]["status"]["phase"] == "Running"


async def test_a_gang_of_one_that_is_in_trouble_is_written_soon(setup: Setup):
    setup.reporter.gang(gang(), waits(gang(), Code.NEVER_FITS, "no node is large enough"))
    await setup.time.advance(FIRST_DELAY_S)
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "NeverFits"


def run(*uids: str, at: float, terminating: bool = False) -> tuple[Member, ...]:
    """Pods of gang g that were made at `at`."""
    stamps = {"creationTimestamp": timestamps.seconds(at)}
    stamps |= {"deletionTimestamp": timestamps.seconds(at)} if terminating else {}
    bodies = ({"metadata": {"name": uid, "namespace": "ml", "uid": uid, **stamps}} for uid in uids)
    stage = Stage.RELEASED if terminating else Stage.GATED
    return tuple(Member(pod=msgspec.convert(body, core.Pod), stage=stage) for body in bodies)


async def test_the_age_is_that_of_the_pods_that_are_there_and_a_member_that_is_replaced_changes_none(setup: Setup):
    first = setup.time.now

    async def age_s(*members: Member) -> float:
        setup.reporter.gang(Gang(id=("ml", "g"), size=2, members=members), SchedulingState())
        await setup.time.advance(10.0)
        return line(setup.objects.gangs["ml/g"], now=setup.time.now).age_s

    assert await age_s(*run("a", "b", at=first)) == 10
    await setup.time.advance(200.0)
    other = setup.time.now
    assert await age_s(*run("b", at=first), *run("c", at=other)) == 220, "it goes on with another pod"
    anew = setup.time.now
    leaving = run("b", "c", at=first, terminating=True)
    assert await age_s(*leaving, *run("d", "e", at=anew)) == 10, "its Job was deleted and created again"
    assert await age_s(*run("d", "e", at=anew)) == 20


async def test_an_admission_is_reported_by_its_end_alone(setup: Setup):
    setup.reporter.gang(gang(solo=False), ADMITTING)
    await setup.time.advance(ADMITTING_S - 0.5)
    assert setup.objects.written == {}
    setup.reporter.gang(gang(solo=False, stage=Stage.RELEASED), SchedulingState())
    await setup.time.advance(FIRST_DELAY_S)
    assert setup.objects.written == {"gangs": 1, "gangs/status": 1, "events": 1}
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "Starting"


async def test_an_admission_that_takes_long_is_reported(setup: Setup):
    setup.reporter.gang(gang(solo=False), ADMITTING)
    await setup.time.advance(ADMITTING_S + 0.1)
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "Admitting"


async def test_a_selector_with_control_characters_reaches_neither_status_nor_events(setup: Setup):
    evil = 'device.attributes["\x1b]0;owned\x07\x9b2J\u202e"].x: no such key'
    setup.reporter.gang(gang(), waits(gang(), Code.NEVER_FITS, evil))
    await setup.time.advance(FIRST_DELAY_S)
    status = setup.objects.gangs["ml/g"]["status"]
    assert "owned" in status["message"]
    assert texts.tree(setup.objects.gangs["ml/g"]) is setup.objects.gangs["ml/g"], status
    assert all(texts.plain(event["message"]) == event["message"] for event in setup.objects.events.values())
    written = dict(setup.objects.written)
    setup.reporter.gang(gang(), waits(gang(), Code.NEVER_FITS, evil))
    await setup.time.advance(60.0)
    assert setup.objects.written == written, "what is written equals what was, so it is not written again"


async def test_a_status_is_not_written_again_for_what_the_apiserver_adds_to_it(setup: Setup):
    """A placement says nothing of what was not asked for; it is stored with an empty text."""
    level = LevelPlacement(level="rack", asked="", domains=1, apart=0, where=("r1: 2 members",))
    setup.reporter.gang(gang(solo=False, stage=Stage.RELEASED), SchedulingState(placement=(level,)))
    await setup.time.advance(FIRST_DELAY_S)
    assert setup.objects.gangs["ml/g"]["status"]["placement"][0]["asked"] == ""
    written = dict(setup.objects.written)
    setup.objects.gangs["ml/g"]["metadata"]["resourceVersion"] = "another's write"
    setup.reporter.gang(gang(solo=False, stage=Stage.RELEASED), SchedulingState(placement=(level,)))
    await setup.time.advance(60.0)
    assert setup.objects.written == written
