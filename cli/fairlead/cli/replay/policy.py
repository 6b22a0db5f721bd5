"""`fairlead replay --policy`: the recorded time under the recorded policy and under another one, side by side.

Both are lived in virtual time by the same rules, so that what differs is the policy's doing; what was recorded stands beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.printer import say
from fairlead.cli.replay.drawing import draw
from fairlead.cli.views import printing
from fairlead.cli.views.table import Cell, Column
from fairlead.controller.watch import scheduled, settings
from fairlead.engine.types.settings import QueueSpec
from fairlead.history.facts.errors import FactsError
from fairlead.history.plans.view import moment
from fairlead.history.recording.reader import Reader
from fairlead.history.replay.counterfactual import Outcome, Policy
from fairlead.history.replay.counterfactual import live as live_again
from fairlead.history.replay.day import Day, Key, read_day

Json = dict[str, Any]
HOUR = 3600.0
GANGS_SHOWN = 20
CHANGES_MAX = 10_000  # of quotas, by schedules
WAITS = ("recorded policy", "other policy")


class PolicyError(FactsError):
    """The file names no policy that can be understood."""


def live(
    paths: Sequence[Path],
    policy_file: Path | None,
    *,
    usage_weight: float | None,
    half_life_s: float,
    svg_file: Path | None,
    output: str,
) -> int:
    """The exit code. Raises RecordingError, PolicyError, OSError."""
    read_policy(policy_file, usage_weight=usage_weight, half_life_s=half_life_s)  # before the day, which takes long
    reader = Reader(paths)
    day = read_day(reader)
    other = read_policy(
        policy_file, usage_weight=usage_weight, half_life_s=half_life_s, began=day.began, ended=day.ended
    )
    outcomes = [live_again(day, policy) for policy in (Policy(half_life_s=half_life_s), other)]
    found = _summary(day, outcomes, reader.torn)
    if svg_file is not None:
        svg_file.write_text(draw([(name, each.totals.curve) for name, each in zip(WAITS, outcomes, strict=True)]))
    if output == "json":
        printing.structured(found, "json")
    else:
        _print(found)
    return 0


def read_policy(
    path: Path | None, *, usage_weight: float | None, half_life_s: float, began: float = 0.0, ended: float = 0.0
) -> Policy:
    """Queues and Flavors of the file, which replace those of their names. Raises PolicyError, OSError.

    Schedules of its queues are followed from `began` to `ended`, unix seconds.
    """
    if path is None:
        return Policy(usage_weight=usage_weight, half_life_s=half_life_s)
    try:
        objects = list(_objects(yaml_text.documents(files.read(path))))
    except UnreadableError as error:
        raise PolicyError(f"{path}: no YAML: {error}") from None
    for each in objects:
        if not isinstance(each, dict) or each.get("kind") not in {"Queue", "Flavor"}:
            kind = each.get("kind") if isinstance(each, dict) else type(each).__name__
            raise PolicyError(
                f"{path}: kind: {kind!r}: a policy is made of Queues and Flavors; "
                "`kubectl get queues.fairlead.dev,flavors.fairlead.dev -o yaml` writes those of a cluster"
            )
    if not objects:
        raise PolicyError(f"{path} holds no Queue and no Flavor: there is nothing to change")
    read = settings.read(
        [each for each in objects if each["kind"] == "Queue"], [each for each in objects if each["kind"] == "Flavor"]
    )
    unreadable = [problem for problem in read.problems if problem.reason == "Unreadable"]
    if unreadable:
        raise PolicyError(f"{path}: {unreadable[0]}")
    first = scheduled.at(read, began)
    return Policy(
        queues=first.queues,
        changes=tuple(_changes(path, read, first.due, ended)),
        flavors=read.flavors,
        usage_weight=usage_weight,
        half_life_s=half_life_s,
    )


def _changes(
    path: Path, read: settings.Settings, due: float | None, ended: float
) -> Iterator[tuple[float, tuple[QueueSpec, ...]]]:
    number = 0
    while due is not None and due < ended:
        number += 1
        if number > CHANGES_MAX:
            raise PolicyError(
                f"{path}: the schedules of its queues change quotas more than {CHANGES_MAX} times in this recording: "
                "write longer spans, or replay fewer segments"
            )
        found = scheduled.at(read, due)
        yield due, found.queues
        due = found.due


def _objects(documents: Sequence[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from document.get("items") or ()
        elif document is not None:
            yield document


# -- what came of it -----------------------------------------------------------------------------------------------


def _summary(day: Day, outcomes: Sequence[Outcome], torn: str) -> Json:
    gangs = [_gang(day, key, outcomes) for key in sorted(day.jobs, key=lambda key: (day.jobs[key].arrived, key))]
    recorded = [job for job in day.jobs.values() if job.started is not None]
    waits = [job.started - job.arrived for job in recorded if job.started is not None and not job.initial]
    return {
        "from": moment(day.began),
        "to": moment(day.ended),
        "torn": torn,
        "recorded": {
            "decisions": day.decisions,
            "gangs": len(day.jobs),
            "started": len(recorded),
            "evictions": sum(job.evicted for job in day.jobs.values()),
            **_waits(waits),
        },
        **{
            name: _outcome(day, outcome)
            for name, outcome in zip(("recordedPolicy", "otherPolicy"), outcomes, strict=True)
        },
        "gangs": gangs,
    }


def _outcome(day: Day, outcome: Outcome) -> Json:
    totals = outcome.totals
    waits = [
        life.started - day.jobs[key].arrived
        for key, life in outcome.lives.items()
        if life.started is not None and not day.jobs[key].initial
    ]
    return {
        "decisions": outcome.decisions,
        "gangs": len(outcome.lives),
        "started": sum(life.started is not None for life in outcome.lives.values()),
        "evictions": outcome.evictions,
        **_waits(waits),
        "gpuHours": round(totals.used_s / HOUR, 3),
        "gpuHoursIdle": round((totals.capacity_s - totals.used_s) / HOUR, 3),
        "gpuHoursIdleWhileGangsWait": round(totals.idle_while_waiting_s / HOUR, 3),
        "gpuHoursLostToEvictions": round(outcome.lost_s / HOUR, 3),
        "utilisation": round(totals.used_s / totals.capacity_s, 4) if totals.capacity_s else None,
        "runTimesAssumed": outcome.assumed,
        "evictedAndNotKnownHowToStart": outcome.lost_gangs,
        "queues": [
            {
                "queue": queue,
                "flavor": flavor,
                "usedHours": round(sums.used / HOUR, 3),
                "fairShareHours": round(sums.fair_share / HOUR, 3),
                "demandHours": round(sums.demand / HOUR, 3),
                "shortHours": round(sums.short / HOUR, 3),
            }
            for (queue, flavor), sums in sorted(totals.queues.items())
        ],
    }


def _waits(waits: Sequence[float]) -> Json:
    if not waits:
        return {"waitMeanSeconds": None, "waitP90Seconds": None}
    p90 = quantiles(waits, n=10)[-1] if len(waits) > 1 else waits[0]
    return {"waitMeanSeconds": round(mean(waits), 3), "waitP90Seconds": round(max(0.0, p90), 3)}


def _gang(day: Day, key: Key, outcomes: Sequence[Outcome]) -> Json:
    job = day.jobs[key]
    lives = [outcome.lives[key] for outcome in outcomes]
    queue = next((life.queue for life in lives if life.queue), None) or (job.request.queue if job.request else None)
    return {
        "gang": job.id,
        "queue": queue,
        "arrived": moment(job.arrived),
        "devices": max(life.devices for life in lives),
        "started": {
            "recorded": None if job.started is None else moment(job.started),
            "recordedPolicy": None if lives[0].started is None else moment(lives[0].started),
            "otherPolicy": None if lives[1].started is None else moment(lives[1].started),
        },
        "laterBySeconds": None
        if lives[0].started is None or lives[1].started is None
        else round(lives[1].started - lives[0].started, 3),
        "evictions": {"recorded": job.evicted, "recordedPolicy": lives[0].evicted, "otherPolicy": lives[1].evicted},
    }


# -- for people ----------------------------------------------------------------------------------------------------

_ROWS = (
    ("gangs", "gangs"),
    ("started", "started"),
    ("wait, mean s", "waitMeanSeconds"),
    ("wait, p90 s", "waitP90Seconds"),
    ("evictions", "evictions"),
    ("GPU-hours used", "gpuHours"),
    ("GPU-hours idle", "gpuHoursIdle"),
    ("GPU-hours idle while gangs wait", "gpuHoursIdleWhileGangsWait"),
    ("GPU-hours lost to evictions", "gpuHoursLostToEvictions"),
    ("utilisation", "utilisation"),
    ("decisions", "decisions"),
)


def _print(found: Json) -> None:
    say(f"{found['from']} to {found['to']}, lived again in virtual time")
    if found["torn"]:
        say(f"note: {found['torn']}")
    columns = [Column(title="")] + [
        Column(title=title, right=True) for title in ("RECORDED", "ITS POLICY", "OTHER POLICY")
    ]
    parts = [found["recorded"], found["recordedPolicy"], found["otherPolicy"]]
    printing.table(columns, [[Cell(title), *(Cell(_text(part.get(key))) for part in parts)] for title, key in _ROWS])
    _print_queues(parts[1]["queues"], parts[2]["queues"])
    _print_gangs(found["gangs"])
    if parts[2]["runTimesAssumed"]:
        say(
            f"\n{parts[2]['runTimesAssumed']} gangs never ran in the recording; they run as long as the median of their queue"
        )
    if parts[2]["evictedAndNotKnownHowToStart"]:
        say(
            f"{parts[2]['evictedAndNotKnownHowToStart']} evicted gangs ran when the recording began; what they asked for is not recorded, "
            "so they do not come back"
        )


def _print_queues(before: list[Json], after: list[Json]) -> None:
    if not before and not after:
        return
    say("\nQueues, in the flavor's measure × hours (its policy → other policy)")
    by_key = {(each["queue"], each["flavor"]): each for each in before}
    known = {(each["queue"], each["flavor"]): each for each in after}
    columns = [Column(title="QUEUE", least=10), Column(title="FLAVOR", least=6)]
    columns += [Column(title=title, right=True) for title in ("USED", "FAIR SHARE", "SHORT OF IT")]
    rows = []
    for key in sorted(by_key.keys() | known.keys()):
        cells = [
            Cell(f"{_text(by_key.get(key, {}).get(field))} → {_text(known.get(key, {}).get(field))}")
            for field in ("usedHours", "fairShareHours", "shortHours")
        ]
        rows.append([Cell(key[0]), Cell(key[1]), *cells])
    printing.table(columns, rows)


def _print_gangs(gangs: list[Json]) -> None:
    moved = [gang for gang in gangs if gang["started"]["recordedPolicy"] != gang["started"]["otherPolicy"]]
    if not moved:
        say("\nEvery gang starts when it starts under the recorded policy")
        return
    moved.sort(key=lambda gang: -abs(gang["laterBySeconds"] if gang["laterBySeconds"] is not None else float("inf")))
    say(
        f"\n{len(moved)} gangs start at another time" + (f"; {GANGS_SHOWN} of them" if len(moved) > GANGS_SHOWN else "")
    )
    columns = [Column(title="GANG", least=12), Column(title="QUEUE", least=8)]
    columns += [Column(title=title) for title in ("ARRIVED", "STARTED", "STARTS")] + [
        Column(title="LATER BY s", right=True)
    ]
    printing.table(
        columns,
        [
            [
                Cell(gang["gang"]),
                Cell(gang["queue"] or "-"),
                Cell(gang["arrived"]),
                Cell(gang["started"]["recordedPolicy"] or "not"),
                Cell(gang["started"]["otherPolicy"] or "not"),
                Cell(_text(gang["laterBySeconds"])),
            ]
            for gang in moved[:GANGS_SHOWN]
        ],
    )


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.10g}" if isinstance(value, int) else f"{value:,.2f}"
