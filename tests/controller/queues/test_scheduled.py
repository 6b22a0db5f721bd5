"""Quotas by the time of day: what the engine gets, when the controller decides again, and what the Queue's status says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.api.queue import QueueStatus
from fairlead.controller.report.queue_status import QueueShown, queue_status
from fairlead.controller.report.status_writer import known_fields, merge_patch
from fairlead.controller.watch import scheduled, settings
from fairlead.engine.types.plan import QueueUse
from fairlead.ui.model.explanations import queue_explanation
from fairlead.ui.model.queues import tree

BERLIN = {"timeZone": "Europe/Berlin"}
NIGHT = [{"flavor": "h100", "deserved": 16, "limit": 32}]
NIGHTS = {"name": "nights", "start": "0 20 * * 1-5", "for": "11h", "flavors": NIGHT, **BERLIN}
MONDAY = {"name": "monday", "start": "0 22 * * 1", "for": "1h", "flavors": [{"flavor": "h100", "limit": 8}], **BERLIN}


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def queue(*schedule: dict[str, Any], name: str = "red") -> dict[str, Any]:
    flavors = [{"flavor": "h100", "deserved": 4, "borrowingLimit": 2}]
    meta = {"name": name, "uid": f"uid-{name}", "generation": 1}
    return {"metadata": meta, "spec": {"flavors": flavors, "schedule": [*schedule]}}


def quota(found: scheduled.Scheduled, name: str = "red") -> tuple[object, ...]:
    (of,) = (each for each in found.queues if each.name == name)
    (h100,) = of.quotas
    return h100.deserved, h100.limit, h100.borrowing_limit


def test_the_engine_gets_the_quotas_that_are_in_force() -> None:
    known = settings.read([queue(NIGHTS), queue(name="blue")], [])
    day, night = scheduled.at(known, at("2026-11-23T12:00+01:00")), scheduled.at(known, at("2026-11-23T20:00+01:00"))
    assert (quota(day), quota(night)) == ((4, None, 2), (16, 32, 2))
    assert quota(day, "blue") == quota(night, "blue") == (4, None, 2)
    assert {queue.name: queue.quotas_change_at for queue in day.queues} == {"blue": None, "red": day.due}
    assert (day.due, night.due) == (at("2026-11-23T20:00+01:00"), at("2026-11-24T07:00+01:00"))
    assert scheduled.at(settings.read([queue()], []), 0.0).due is None


def test_where_two_entries_meet_a_limit_below_what_is_deserved_counts() -> None:
    known = settings.read([queue(NIGHTS, MONDAY)], [])
    found = scheduled.at(known, at("2026-11-23T22:30+01:00"))
    assert quota(found) == (8, 8, 2)
    assert found.due == at("2026-11-23T23:00+01:00")
    assert quota(scheduled.at(settings.read([queue(MONDAY, NIGHTS)], []), at("2026-11-23T22:30+01:00"))) == (16, 32, 2)


def test_an_amount_that_cannot_be_read_is_a_problem_when_it_is_written_not_when_it_comes_into_force() -> None:
    huge = {**NIGHTS, "flavors": [{"flavor": "h100", "limit": "1e999"}]}
    known = settings.read([queue(huge)], [])
    assert [(each.reason, each.name) for each in known.problems] == [("Unreadable", "red")]
    assert known.queues == ()


def test_the_same_objects_are_given_until_the_next_change() -> None:
    known = settings.read([queue(NIGHTS)], [])
    quotas = scheduled.ScheduledQuotas()
    evening = at("2026-11-23T19:00+01:00")
    first = quotas.at(known, evening)
    assert quotas.at(known, evening + 3599.9) is first
    second = quotas.at(known, evening + 3600)
    assert quota(second) == (16, 32, 2)
    assert quota(quotas.at(known, evening)) == (4, None, 2), "a clock that goes back"
    assert quota(quotas.at(settings.read([queue()], []), evening)) == (4, None, 2), "a schedule that is removed"


def status(raw: dict[str, Any], now: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    found = scheduled.at(settings.read([raw], []), at(now))
    use = QueueUse(name="red", flavors=(), waiting=0, admitted=0)
    shown = QueueShown(use=use, scheduled=found.by_queue.get("red"))
    return queue_status(shown, None, before=before or {}, generation=1, now=at(now))


def test_status_and_views_say_what_is_in_force_and_until_when() -> None:
    raw = queue(NIGHTS, MONDAY)
    night = status(raw, "2026-11-23T20:30+01:00")
    assert night["schedule"] == {
        "inForce": [{"name": "nights", "until": "2026-11-24T06:00:00Z"}],
        "nextChange": "2026-11-23T21:00:00Z",
        "quotas": [{"flavor": "h100", "deserved": 16, "limit": 32}],
    }
    assert QueueStatus.model_validate(night).schedule is not None
    (line,) = tree([{**raw, "status": night}])
    assert [(share.deserved, share.limit) for share in line.shares] == [("16", "32")]
    said = ("nights is in force until 2026-11-24T06:00:00Z", "another comes into force at 2026-11-23T21:00:00Z")
    assert line.schedule == said
    explained = queue_explanation({**raw, "status": night}, [], now=at("2026-11-23T20:30+01:00"))
    assert [part.lines for part in explained.parts if part.title == "Schedule"] == [said]
    day = status(raw, "2026-11-24T12:00+01:00")
    (line,) = tree([{**raw, "status": day}])
    assert [(share.deserved, share.limit) for share in line.shares] == [("4", None)]
    assert line.schedule == ("no entry is in force; an entry comes into force at 2026-11-24T19:00:00Z",)


def test_a_schedule_that_is_removed_goes_from_the_status_too() -> None:
    stored = status(queue(NIGHTS), "2026-11-23T20:30+01:00")
    after = status(queue(), "2026-11-23T20:30+01:00", before=known_fields(stored, QueueStatus))
    assert merge_patch(stored, after, QueueStatus, whole=False)["schedule"] is None
    assert "schedule" not in status(queue(), "2026-11-23T20:30+01:00")
    (line,) = tree([{**queue(), "status": stored}])
    assert (line.schedule, [share.deserved for share in line.shares]) == ((), ["4"]), "not yet written"
