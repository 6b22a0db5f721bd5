"""Each fact of a cluster, which views show it, how it is read there, and where they differ.

What a view has beyond that under a name of its own (a field of JSON, a part of an explanation) is a difference, too: a fact whose other
views nobody compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import age
from tests.support.views import Answers
from tests.support.views_cluster import NOW

from .seen import UNSAID, ClusterSeen, GangSeen, QueueSeen, number


class Read(NamedTuple):
    """`name`: under which the view has it; `get` makes it comparable, or says `UNSAID`."""

    view: str
    name: str
    get: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True)
class Fact:
    """The first reading is that of where the fact comes from. `when`: of which gangs the views say it."""

    name: str
    reads: tuple[Read, ...]
    when: Callable[[Any], bool] = field(default=lambda seen: True)


def pair(at: int) -> Callable[[str], Any]:
    """Of `3/4` or `3 of 4` the first or the second number."""
    return lambda text: int(re.findall(r"\d+", text)[at])


def word(pattern: str, *, otherwise: Any = UNSAID) -> Callable[[Any], Any]:
    """What the pattern finds in a text, or in several."""

    def get(text: Any) -> Any:
        found = re.search(pattern, text if isinstance(text, str) else " | ".join(text or ()))
        return otherwise if found is None else found[1]

    return get


def after_colon(text: str) -> str:
    return text.partition(": ")[2]


def without_time_left(text: str) -> str:
    return re.sub(r" \(\d+[smhd] left\)", "", text)


def never(text: Any) -> bool:
    return bool(text == "never")


def in_words(p50: str | None, p90: str | None) -> str | None:
    """As a line has it, at `NOW`."""
    if p50 is None:
        return None
    left_s = timestamps.parse(p50) - NOW
    late = "" if p90 is None else f" (p90 {age(timestamps.parse(p90) - NOW)})"
    return f"in {age(left_s)}{late}" if left_s > 0 else f"by now{late}"


def start(said: Raw | None) -> Any:
    return (said or {}).get("p50"), (said or {}).get("p90")


def start_in_words(text: Any) -> Any:
    """Both times in a sentence, or in several."""
    said = without_time_left(" | ".join(text) if isinstance(text, list) else text or "")
    found = re.search(r"by (\S+Z) with 50 % probability(?:[;,] by (\S+Z) with 90 %)?", said)
    return (None, None) if found is None else (found[1], found[2])


def listed_names(text: str) -> list[str]:
    return [each for each in re.split(r",\s*", text) if each and each != "-"]


def held(kinds: Iterable[str]) -> dict[str, int]:
    """`2 × NVIDIA H100 80GB HBM3`: how many whole devices and parts, which name their profile."""
    found: dict[str, int] = {}
    for each in kinds:
        count, _, model = each.partition(" × ")
        kind = "part" if re.search(r"\dg\.\d+gb", model) else "whole"
        found[kind] = found.get(kind, 0) + int(count)
    return found


EVICTION = r"to be evicted at (\S+Z)"
HOLD = r"on hold by (\w+ since \S+Z)"
ANY = tuple[Read, ...]


def of(alike: str = "", /, **reads: Any) -> ANY:
    """Readings by view: the name there, or with how it is read. `alike`: a name, and the views that have the fact under it as it is."""
    name, *views = alike.split() or [""]
    found = dict.fromkeys(views, name) | reads
    return tuple(Read(view, *(read if isinstance(read, tuple) else (read,))) for view, read in found.items())


def read_by(get: Callable[[Any], Any], **names: str) -> dict[str, Any]:
    """Views that have it in a text of this form."""
    return {view: (name, get) for view, name in names.items()}


def waits(seen: GangSeen) -> bool:
    return seen.engine is not None


FIRST = number(r"(\d+)")
WHY = {"table": "WHY", "page_of_all": "Why"}
PODS = {"table": "PODS", "explained": "Pods", "page": "pods run", "page_of_all": "Pods"}

GANG: tuple[Fact, ...] = (
    Fact(
        "phase",
        of(
            "phase status listed page snapshot",
            table="PHASE",
            page_of_all="Phase",
            explained=("headline", word(r"gang \S+: (\w+)")),
        ),
    ),
    Fact(
        "queue",
        of(
            "queue status listed page snapshot what_if",
            engine=("queue", lambda name: name or UNSAID),
            table="QUEUE",
            page_of_all="Queue",
            explained=("headline", word(r"in queue (\S+?),? ", otherwise="")),
        ),
    ),
    Fact(
        "position",
        of(
            "position status listed snapshot",
            engine="place",
            explained=("headline", number(r"(\d+)\w\w in line")),
            **read_by(FIRST, table="POS", page="position", page_of_all="Position"),
        ),
    ),
    Fact(
        "members of its size that run",
        (
            *of("ready status listed snapshot", **read_by(pair(0), **PODS)),
            Read("status", "message", number(r"(\d+) of \d+ members run", otherwise=UNSAID)),
        ),
    ),
    Fact(
        "its size",
        (
            *of("size spec listed snapshot", **read_by(pair(1), **PODS)),
            Read("status", "message", number(r"\d+ of (\d+) members (?:run|exist)", otherwise=UNSAID)),
        ),
    ),
    Fact(
        "members that exist",
        (
            *of("members status listed", made="pods", explained=("Pods", number(r"(\d+) exist"))),
            Read("status", "message", number(r"(\d+) of \d+ members exist(?!.* leaving )", otherwise=UNSAID)),
        ),
    ),
    Fact(
        "nodes",
        of(
            "nodes made status listed snapshot",
            table=("NODES", listed_names),
            explained=("Pods", lambda text: listed_names(text.partition("; on ")[2])),
        ),
    ),
    Fact(
        "age",
        of("age_s listed snapshot", made="age", status=("queuedTime", lambda at: NOW - timestamps.parse(at))),
    ),
    Fact("age in words", of("age page", made=("age", age), table="AGE", page_of_all="Age")),
    Fact(
        "how long it waits",
        of(
            explained="Waited",
            **read_by(age, made="age", status="waitSeconds", listed="waited_s"),
            page_of_all="Waited",
        ),
        lambda seen: seen.phase in {"Waiting", "Gathering"},
    ),
    Fact(
        "devices that it holds, parts apart",
        of(
            "devices made",
            status=("models", lambda said: held(said["held"])),
            listed=("models", held),
            **read_by(lambda text: held(re.findall(r"\d+ × [^,;]+", text)), explained="Models", page="held"),
        ),
        lambda seen: bool(seen.made["devices"]) and seen.phase in {"Running", "Admitted"},
    ),
    Fact(
        "devices that it asks for, by class",
        of(
            "asks status listed",
            page=("asked for", listed_names),
            page_of_all=("GPUs", lambda text: listed_names(text.removeprefix("asks for").strip())),
        ),
        lambda seen: bool(seen.status.get("asks")),
    ),
    Fact(
        "members without devices",
        of("without_devices listed", status="withoutDevices", page=("without devices", int)),
        lambda seen: bool(seen.status.get("withoutDevices")),
    ),
    Fact("reason", of("reason status listed snapshot", engine="code", explained=("headline", word(r"\((\w+)\)$")))),
    Fact(
        "why it waits",
        of(
            "why listed snapshot",
            engine="message",
            status=("why", lambda why: why["message"]),
            explained=("What blocks it", without_time_left),
            **read_by(after_colon, **WHY),
        ),
        waits,
    ),
    Fact("what its line says", of("why listed", **read_by(after_colon, **WHY))),
    Fact(
        "that it never starts",
        of(
            "never engine forecast what_if",
            status=("forecast", lambda said: bool((said or {}).get("never"))),
            events=("forecast", lambda said: any("it cannot run" in text for text in said)),
            **read_by(never, listed="forecast", table="FORECAST", page="forecast", page_of_all="Forecast"),
        ),
        waits,
    ),
    Fact(
        "when it starts",
        of(
            "start forecast what_if",
            status=("forecast", start),
            **read_by(start_in_words, explained="Forecast of its start", events="forecast"),
        ),
        waits,
    ),
    Fact(
        "when it starts, in words",
        of(
            "forecast listed page",
            forecast=("start", lambda at: in_words(*at)),
            table="FORECAST",
            page_of_all="Forecast",
        ),
        lambda seen: waits(seen) and not seen.engine["never"],
    ),
    Fact(
        "when it is evicted",
        (
            *of(
                "evicted_at made",
                **read_by(word(EVICTION), status="is Evicting", listed="why", explained="Why", **WHY),
            ),
            Read("listed", "evicts_at"),
        ),
        lambda seen: seen.made["evicted_at"] is not None,
    ),
    Fact(
        "by whom it is held, since when",
        of(
            "hold made",
            **read_by(
                word(HOLD),
                status="is OnHold",
                engine="message",
                listed="why",
                forecast="because",
                what_if="on_hold",
                explained="What blocks it",
                events="said",
            ),
        ),
        lambda seen: seen.status["reason"] == "OnHold",
    ),
)


def counted(word_: str) -> dict[str, Any]:
    """How many gangs of a queue, where that stands in a sentence."""
    return read_by(number(rf"(\d+) {word_}"), explained="headline", page="counts")


QUEUE: tuple[Fact, ...] = (
    Fact("places", of("places status made")),
    Fact(
        "gangs that wait",
        (
            *of("waiting status made listed series snapshot what_if", table=("WAITING", FIRST), **counted("waiting")),
            Read("series", "by reason"),
            Read("explained", "Waiting, in order", lambda lines: len(lines or ())),
        ),
    ),
    Fact(
        "gangs that run",
        (
            *of(
                "running status made listed snapshot what_if",
                series="admitted",
                table=("RUNNING", FIRST),
                **counted("running"),
            ),
            Read("explained", "Running", lambda lines: len(lines or ())),
        ),
    ),
    Fact(
        "what it uses",
        of(
            "used listed series snapshot what_if",
            status="allocated of gpu",
            table="USED",
            explained=("Shares", word(r"uses (\S+) of")),
            page=("figures", word(r"(\S+) used")),
        ),
    ),
    Fact(
        "its fair share",
        of(
            "fair_share listed snapshot",
            status="fairShare of gpu",
            table="FAIR SHARE",
            what_if="fair",
            explained=("Shares", word(r"fair share of (\w+)")),
            page=("figures", word(r"(\S+) fair share")),
        ),
    ),
    Fact(
        "what it asks for",
        of(
            "demand listed snapshot",
            status="demand of gpu",
            table="ASKED",
            explained=("Shares", word(r"asks for (\w+)")),
            page=("figures", word(r"(\S+) demand")),
        ),
    ),
    Fact(
        "by whom it is held, since when",
        of(
            "hold made",
            **read_by(
                word(HOLD, otherwise=None), status="is OnHold", listed="hold", explained="On hold", snapshot="hold"
            ),
        ),
    ),
)
"""Queues of one flavor, gpu."""


CLUSTER: tuple[Fact, ...] = (
    Fact("GPUs, one that is cut once", of("GPUs made map page top nodes overview tiles snapshot what_if")),
    Fact(
        "GPUs with a claim on them or on a part of them",
        of("held made map page top nodes overview tiles snapshot what_if"),
    ),
    Fact("GPUs that no claim holds and one could", of("free made map page top nodes overview tiles snapshot")),
    Fact("GPUs that no claim holds and none may", of("unavailable made map page top nodes overview tiles snapshot")),
    Fact("GPUs that are kept back", of("drained made map page top overview tiles snapshot")),
    Fact("GPUs that are broken", of("broken made map page top overview tiles snapshot")),
    Fact("GPUs that nothing usual fits", of("fragmented map page top overview tiles snapshot")),
    Fact("gangs that wait", of("waiting map top overview tiles")),
    Fact("gangs by phase", of("gangs map top")),
)

EXPLAINED_ALONE = "In detail|Devices it could use are held by|Why nothing is evicted for it|What would change it|Also|Placement|Nodes for it|Why"
KEPT_IN_STATUS = "observedGeneration placement reservedNodes admittedTime nodesAwaited lastEviction evictions"
ALSO: Mapping[str, frozenset[str]] = {
    "listed": frozenset({"namespace", "name", "evicting"}),
    "explained": frozenset(EXPLAINED_ALONE.split("|")),
    "status": frozenset(KEPT_IN_STATUS.split())
    | {f"is {kind}" for kind in ("Admitted", "Running", "Preempting", "Reserved", "Evicted")},
    "page": frozenset({"run"}),
}
"""What of a gang one view alone shows, or that is compared as part of a sentence: texts about other gangs, and the controller's records."""


def differences(answers: Answers) -> list[str]:
    """What views say differently, and what they show that no fact lists."""
    gangs = [GangSeen(answers, gang_id) for gang_id in sorted(answers.gangs)]
    found = [text for seen in gangs for text in _of(GANG, seen)]
    found += [text for name in sorted(answers.queues) for text in _of(QUEUE, QueueSeen(answers, name))]
    found += _of(CLUSTER, ClusterSeen(answers))
    return [
        *found,
        *(text for seen in gangs for text in (*_impossible(seen), *_unlisted(seen))),
        *_same_documents(answers),
    ]


def _of(facts: Iterable[Fact], seen: Any) -> list[str]:
    found = []
    for fact in facts:
        if not fact.when(seen):
            continue
        said = {f"{read.view} {read.name}": _value(read, seen) for read in fact.reads}
        said = {where: value for where, value in said.items() if value != UNSAID}
        first = next(iter(said.values()), None)
        if any(value != first for value in said.values()):
            found.append(f"{seen.id}: {fact.name}: {said}")
    return found


def _value(read: Read, seen: Any) -> Any:
    has = seen.view(read.view)
    if has is None:
        return UNSAID
    value = has.get(read.name)
    try:
        value = read.get(value)
    except (TypeError, AttributeError, IndexError):
        value = None
    value = list(value) if isinstance(value, tuple) else value
    return None if value in ([], "", "-", "–") else value


def _impossible(seen: GangSeen) -> Iterable[str]:
    """What contradicts what is known, wherever it is said."""
    waiting, (p50, p90) = seen.answers.waiting.get(seen.id), start(seen.status.get("forecast"))
    known = [timestamps.parse(at) for at in (p50, p90) if at]
    if waiting is None or not seen.waits:
        if known:
            yield f"{seen.id}: a time beside phase {seen.phase}"
        return
    if known and (waiting.reason.never or waiting.reason.code.value == "OnHold"):
        yield f"{seen.id}: a time for what does not start: {waiting.reason.code}, {p50}, {p90}"
    if waiting.ends_by is not None and any(at > waiting.ends_by for at in known):
        yield f"{seen.id}: a time after its deadline"
    if waiting.reason.due is not None and any(at < waiting.reason.due for at in known):
        yield f"{seen.id}: a time before the eviction that it waits for"
    if (seen.status["why"].get("couldEverFit") is False) > waiting.reason.never:
        yield f"{seen.id}: could never fit, and yet may start"


def _unlisted(seen: GangSeen) -> Iterable[str]:
    listed = {(read.view, read.name) for fact in GANG for read in fact.reads}
    for view, also in ALSO.items():
        for name in sorted(
            (seen.view(view) or {}).keys() - also - {name for of_view, name in listed if of_view == view}
        ):
            yield f"{seen.id}: {view} shows {name!r}: list the fact, and which views show it"


def _same_documents(answers: Answers) -> Iterable[str]:
    """The pages' JSON is the command line's, and its text has every line of its JSON; so have the pages."""
    pairs = [("/gangs", ("gangs", "-A")), ("/queues", ("queues",))]
    pairs += [
        (f"/gangs/{each}", ("explain", f"gang/{each.split('/')[1]}", "-n", each.split("/")[0]))
        for each in answers.gangs
    ]
    pairs += [(f"/queues/{each}", ("explain", f"queue/{each}")) for each in answers.queues]
    for path, words in pairs:
        printed = answers.cli_json(*words)
        if answers.api(path) != printed:
            yield f"{path} as JSON is not what {' '.join(words)} -o json prints: {answers.api(path)} {printed}"
        if words[0] == "explain":
            text, page = answers.cli(*words), answers.page(path)
            for line in (
                printed["headline"],
                printed["summary"],
                *(line for part in printed["parts"] for line in part["lines"]),
            ):
                if line not in text or line.removeprefix("gang ") not in page:
                    yield f"{path} or {' '.join(words)} does not have the line {line!r}"
