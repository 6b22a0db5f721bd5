"""The page of one gang: its explanation as `fairlead explain -o json` has it, what of it is linked, and what has happened to it; pure.

The timeline has events, status and ledger as one list of moments. Events are kept by the apiserver for an hour or so; status has the last
change of each condition; the ledger has what events said of the last seven days, and every admission and every run of its window. An event
that the ledger has, too, stands there once. What else two of them say of one moment stands there once for each: they are different
witnesses. Of a long reason it has the first sentence, and nothing of what the page says above it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fairlead.api.texts import counted
from fairlead.history.ledger.entries import Decision
from fairlead.kube import timestamps
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model import plain_pods
from fairlead.ui.model.aligned import aligned_lines
from fairlead.ui.model.devices import busy_line
from fairlead.ui.model.explanations import Explanation, gang_explanation, holder_text, holders_of, pod_explanation
from fairlead.ui.model.facts import Facts, Past, gang_text
from fairlead.ui.model.gangs import Line, age, clock, line
from fairlead.ui.model.plain_pods import gang_of
from fairlead.ui.model.runs import past_runs, waiting

NEAR_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderCard:
    """A gang with devices that this one could use, and what is known of its end; `gang` "": claims outside any gang."""

    gang: str
    text: str  # as `fairlead explain` says it, after "gang"
    runs: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangView:
    line: Line
    explanation: Explanation
    holders: tuple[HolderCard, ...] = ()
    reserved: tuple[str, ...] = ()  # nodes that are kept free for it


def find(facts: Facts, namespace: str, name: str, *, known: Raw | None = None) -> GangView | None:
    """A Gang, or a pod that is a gang of one without a Gang object. None where there is neither. `known`: the Gang, where it was found."""
    raw = known or raw_of(facts, namespace, name)
    if raw is not None:
        pods, claims = _held(facts, raw)
        devices = busy_line(claims, {str(pod["metadata"].get("uid", "")) for pod in pods}, now=facts.at)
        aligned = () if facts.hardware is None else aligned_lines(pods, claims, facts.hardware.inventory)
        return GangView(
            line=line(raw, now=facts.at),
            reserved=tuple((raw.get("status") or {}).get("reservedNodes") or ()),
            explanation=gang_explanation(raw, now=facts.at, devices=devices, aligned=aligned),
            holders=_holders(facts, raw),
        )
    pod = next((each for each in facts.pods if _is(each, namespace, name) and plain_pods.is_plain(each)), None)
    if pod is None:
        return None
    running = (pod.get("status") or {}).get("phase") == "Running"
    uid = str(pod["metadata"].get("uid", ""))
    devices = busy_line(_claims_in(facts, namespace), {uid}, now=facts.at) if running else ""
    (seen,) = plain_pods.lines([pod], [], now=facts.at)
    return GangView(line=seen, explanation=pod_explanation(pod, None, now=facts.at, devices=devices))


def _holders(facts: Facts, raw: Raw) -> tuple[HolderCard, ...]:
    own, held = _id(raw), holders_of(raw)
    names = {each.get("gang") for each in held}
    known = {_id(each): each for each in facts.gangs if _id(each) in names}
    because = str(((raw.get("status") or {}).get("forecast") or {}).get("because") or "")
    return tuple(_card(each, known.get(each.get("gang") or ""), own, because, now=facts.at) for each in held)


def _card(holder: Raw, gang: Raw | None, own: str, because: str, *, now: float) -> HolderCard:
    """`gang`: the Gang that holds, where it may be seen. `because`: what the forecast of `own` rests on."""
    name, text = holder.get("gang") or "", holder_text(holder).removeprefix("gang ")
    if gang is None:
        return HolderCard(gang=name, text=text)
    status = gang.get("status") or {}
    since = timestamps.parsed(status.get("admittedTime"))
    runs = "" if since is None else f"for {age(max(0.0, now - since))}"
    eviction = min(status.get("evictions") or (), key=lambda each: str(each.get("at")), default=None)
    at = None if eviction is None else timestamps.parsed(eviction.get("at"))
    end = "when it ends is not known"
    if eviction is not None and at is not None:
        beneficiary = eviction.get("beneficiary") or ""
        whose = " for this gang" if beneficiary == own else f" for {gang_text(beneficiary)}" if beneficiary else ""
        end = f"is evicted{whose} at {clock(at, now=now)}"
    elif f"starts when {name} ends" in because:
        end = "this gang is forecast to start when it ends"
    return HolderCard(gang=name, text=text, runs=runs, end=end)


def _id(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def raw_of(facts: Facts, namespace: str, name: str) -> Raw | None:
    return next((each for each in facts.gangs if _is(each, namespace, name)), None)


def near(facts: Facts, namespace: str, name: str) -> list[str]:
    """namespace/name of gangs that are called the same elsewhere, or nearly the same there."""
    ids = [(raw["metadata"].get("namespace", ""), raw["metadata"]["name"]) for raw in facts.gangs]
    same = [f"{where}/{each}" for where, each in ids if each == name]
    here = [each for where, each in ids if where == namespace]
    return [*same, *(f"{namespace}/{each}" for each in difflib.get_close_matches(name, here, NEAR_MAX))][:NEAR_MAX]


def _held(facts: Facts, gang: Raw) -> tuple[list[Raw], list[ResourceClaim]]:
    """A running gang's pods, and the claims of their namespace."""
    if (gang.get("status") or {}).get("phase") != "Running":
        return [], []
    namespace, name = gang["metadata"]["namespace"], gang["metadata"]["name"]
    pods = [pod for pod in facts.pods if pod["metadata"]["namespace"] == namespace and gang_of(pod) == name]
    return pods, _claims_in(facts, namespace) if pods else []


def _claims_in(facts: Facts, namespace: str) -> list[ResourceClaim]:
    return [claim for claim in facts.claims if claim.metadata.namespace == namespace]


def _is(raw: Raw, namespace: str, name: str) -> bool:
    return bool(raw["metadata"]["name"] == name and raw["metadata"].get("namespace", "") == namespace)


EVENTS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """`at`: when it was seen last, unix seconds; None where no time is written."""

    at: float | None
    reason: str
    message: str
    count: int
    warning: bool


def events_of(found: Iterable[Raw], *, kind: str, namespace: str, name: str) -> tuple[EventLine, ...]:
    """Those on that object; at most `EVENTS_MAX`."""
    own = [
        _line(raw)
        for raw in found
        if (about := raw.get("involvedObject") or {}).get("kind") == kind
        and about.get("name") == name
        and about.get("namespace", namespace) == namespace
    ]
    return tuple(sorted(own, key=lambda each: -(each.at or 0.0))[:EVENTS_MAX])


def _line(raw: Raw) -> EventLine:
    series = raw.get("series") or {}
    written = (
        series.get("lastObservedTime") or raw.get("lastTimestamp") or raw.get("eventTime") or raw.get("firstTimestamp")
    )
    return EventLine(
        at=timestamps.parsed(written),
        reason=str(raw.get("reason") or ""),
        message=str(raw.get("message") or ""),
        count=int(series.get("count") or raw.get("count") or 1),
        warning=raw.get("type") == "Warning",
    )


MOMENTS_MAX = 100
LONG = 160
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
FIRST_STATUS_S = 5.0  # the first status of a Gang is written right after it is created
ENDS = {"Completed": "its pods completed", "Failed": "a pod failed", "Evicted": "it was evicted", "Deleted": "its pods were deleted", "NodeGone": "its node went away"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`at`: unix seconds; None: not known. `source`: Event, Status or Ledger. `warning`: something went wrong."""

    at: float | None
    source: str
    what: str
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A forecast: since when it waits, and when it starts with 50 % probability and with 90 % probability. Unix seconds."""

    queued: float
    now: float
    p50: float
    p90: float | None


def timeline(
    facts: Facts, past: Past, raw: Raw, events: Iterable[EventLine], decisions: Iterable[Decision] = ()
) -> tuple[Moment, ...]:
    """Newest first; at most `MOMENTS_MAX`."""
    above = _plain(str(((raw.get("status") or {}).get("why") or {}).get("message") or ""))
    namespace, name = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
    decided = [
        Moment(at=each.at_us / SECOND_US, source="Ledger", what=each.what, text=each.text, warning=each.warning)
        for each in decisions
    ]
    known = {(each.what, each.text) for each in decided}
    found = [
        *(
            Moment(
                at=each.at,
                source="Event",
                what=each.reason,
                text=each.message + (f" ({each.count} times)" if each.count > 1 else ""),
                warning=each.warning,
            )
            for each in events
            if (each.reason, each.message) not in known
        ),
        *decided,
        *_of_status(raw),
        *_of_ledger(past, namespace, name),
    ]
    newest = sorted(found, key=lambda each: -(each.at or 0.0))[:MOMENTS_MAX]
    return tuple(replace(each, text=_brief(each.text, above)) for each in newest)


def _brief(text: str, above: str) -> str:
    """The first sentence of a long text; "" where the page says it above."""
    first = text if len(text) <= LONG else _SENTENCE.split(text, maxsplit=1)[0]
    return "" if above and _plain(first) == above else first


def _plain(text: str) -> str:
    """To compare a message with the sentence that is made of it."""
    return text.casefold().rstrip(". ")


def spread(facts: Facts, raw: Raw) -> Spread | None:
    """None: it does not wait, or no start is forecast."""
    run = next(waiting([raw], at=facts.at), None)
    return None if run is None or run.end is None else Spread(queued=run.start, now=facts.at, p50=run.end, p90=run.p90)


def ended_runs(past: Past, namespace: str, name: str) -> tuple[str, ...]:
    """The runs of a gang that is not there any more, each in a sentence, the last first."""
    return tuple(
        f"It ran from {timestamps.seconds(run.start)} to {timestamps.seconds(run.end or run.start)} in queue {run.queue or '-'} on "
        f"{_counted(run.devices)}: {ENDS.get(run.ended, 'why it ended is not known')}."
        for run in reversed(past_runs(past, f"{namespace}/{name}"))
    )


def _of_status(raw: Raw) -> Iterator[Moment]:
    created = timestamps.parsed(raw["metadata"].get("creationTimestamp"))
    if created is not None:
        yield Moment(at=created, source="Status", what="Created", text="the Gang was created")
    status = raw.get("status") or {}
    for each in status.get("conditions") or ():
        at = timestamps.parsed(each.get("lastTransitionTime"))
        if at is None:
            continue
        holds = each.get("status") == "True"
        if not holds and created is not None and at - created <= FIRST_STATUS_S:
            continue  # it is there from the first status on, and has not held yet
        # The message of one that does not hold is of now, and says nothing of the moment in which it ceased to hold.
        text = str(each.get("message") or each.get("reason") or each.get("type") or "") if holds else "no longer"
        yield Moment(at=at, source="Status", what=str(each.get("type") or ""), text=text)


def _of_ledger(past: Past, namespace: str, name: str) -> Iterator[Moment]:
    for wait in past.waits:
        if (wait.namespace, wait.gang) == (namespace, name):
            waited = age(max(0, wait.admitted_us - wait.queued_us) / SECOND_US)
            yield Moment(
                at=wait.queued_us / SECOND_US, source="Ledger", what="Queued", text=f"in queue {wait.queue or '-'}"
            )
            yield Moment(
                at=wait.admitted_us / SECOND_US,
                source="Ledger",
                what="Admitted",
                text=f"after {waited} in queue {wait.queue or '-'}",
            )
    for run in past_runs(past, f"{namespace}/{name}"):
        yield Moment(
            at=run.start,
            source="Ledger",
            what="Devices allocated",
            text=f"{_counted(run.devices)}" + (f" on {', '.join(run.nodes[:6])}" if run.nodes else ""),
        )
        if run.state == "ran" and run.end is not None:
            lost = "; its work was lost" if run.lost else ""
            text = f"after {age(run.end - run.start)}: {ENDS.get(run.ended, 'why is not known')}{lost}"
            yield Moment(
                at=run.end, source="Ledger", what="Devices free", text=text, warning=run.lost or run.ended in {"Failed", "Evicted", "NodeGone"}
            )  # fmt: skip


def _counted(count: int | None) -> str:
    return "devices" if count is None else counted(count, "device")
