"""What running gangs report of their own progress: by an annotation on a pod, else by their TrainJob's status.

Not believed: what is no time or no number, what was said before the gang's present run began, and an end that is
`OVERDUE_S` past, as of a program that stopped reporting. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from fairlead.api import names
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.forecast.run_times import Progress
from fairlead.engine.types.gangs import RunningGang
from fairlead.kube import timestamps

OVERDUE_S = 600.0

Reported = Callable[[str, Mapping[str, str]], Progress | None]
"""What the TrainJob of a pod says, by the pod's namespace and labels."""


def progress(
    running: Iterable[RunningGang], gangs: Mapping[GangId, Gang], reported: Reported, now: float
) -> Iterator[tuple[str, Progress]]:
    """By gang id, of those of which it is known."""
    for each in running:
        gang = gangs.get((each.namespace, each.name))
        found = None if gang is None else _annotated(gang, now) or _of_train_job(gang, reported, each.started, now)
        if found is not None and found.at + found.left_s >= now - OVERDUE_S:
            yield each.id, Progress(max(0.0, found.left_s), found.at)


def _annotated(gang: Gang, now: float) -> Progress | None:
    """The latest end that a pod names."""
    texts = (member.pod.metadata.annotations.get(names.EXPECTED_END) for member in gang.released)
    ends = [end for text in texts if text and (end := _time(text)) is not None]
    if not ends:
        return None
    return Progress(max(ends) - now, now)


def _of_train_job(gang: Gang, reported: Reported, started: float, now: float) -> Progress | None:
    found = next(
        (
            said
            for member in gang.released
            if (said := reported(gang.namespace, member.pod.metadata.labels)) is not None
        ),
        None,
    )
    if found is None or found.at < started:
        return None
    return Progress(found.left_s, min(found.at, now))  # a clock that is ahead


def _time(text: str) -> float | None:
    """Unix seconds; None for what is no time."""
    try:
        return timestamps.parse(text)
    except ValueError:
        return None
