"""The text of `fairlead explain` for a gang, a queue or a pod: its state, what blocks it, what would change it.

Pure: objects in, text out. The content is what the controller wrote into Gang and Queue status, and for a pod without a
gang its own conditions; nothing is concluded here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.api import names
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import gang_text
from fairlead.ui.model.gangs import PENDING, Line, age, evicted_at, line, order
from fairlead.ui.model.queues import line as queue_line
from fairlead.ui.model.summaries import summary

LISTED_MAX = 10
_TO_COME = re.compile(r"(?:until|from|by|at) ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z)")


@dataclass(frozen=True, kw_only=True)
class Part:
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The explanation of one object: a headline, for a gang a summary, then parts; `more` explains objects that it belongs to."""

    kind: str
    name: str
    headline: str
    summary: str = ""
    parts: tuple[Part, ...] = ()
    more: tuple[Explanation, ...] = field(default=())


def gang_explanation(raw: Raw, *, now: float, devices: str = "", aligned: Sequence[str] = ()) -> Explanation:
    """Explains a Gang object; `devices` says how busy those that it holds are, `aligned` what they have in common."""
    status, seen = raw.get("status") or {}, line(raw, now=now)
    why = status.get("why") or {}
    place = f", {_ordinal(seen.position)} in line" if seen.position else ""
    queue = f" in queue {seen.queue}" if seen.queue else ""
    headline = f"gang {seen.namespace}/{seen.name}: {seen.phase}{queue}{place} ({seen.reason or 'not looked at yet'})"
    parts = [
        Part(title="Pods", lines=(_pods(status, seen.ready, seen.size, seen.members, seen.nodes),)),
        Part(title="Members without devices", lines=(without_devices(seen),)),
        Part(title="Placement", lines=tuple(_level(each) for each in status.get("placement") or ())),
        Part(title="Models", lines=_models(status.get("models") or {})),
        Part(title="Devices", lines=(devices,)),
        Part(title="Aligned devices", lines=tuple(aligned)),
        Part(title="Waited", lines=(_waited(status, seen),)),
        Part(title="Forecast of its start", lines=_forecast(status, seen, now=now)),
        Part(title="Nodes for it", lines=_nodes(status, now=now)),
    ]
    if why:
        holders = [holder_text(each) for each in holders_of(raw)]
        parts += [
            Part(title="What blocks it", lines=(with_time_left(why.get("message", ""), now=now),)),
            Part(title="In detail", lines=tuple(why.get("details") or ())),
            Part(title="Devices it could use are held by", lines=tuple(holders)),
            Part(
                title="Why nothing is evicted for it",
                lines=tuple(with_time_left(text, now=now) for text in why.get("blockers") or ()),
            ),
            Part(title="What would change it", lines=_advice(why)),
        ]
    message = "" if why else status.get("message") or ""
    told = message or why.get("message") or ""
    parts.append(Part(title="Why", lines=(with_time_left(message, now=now),)))
    holding = [
        with_time_left(_sentence(condition.get("message") or condition["type"]), now=now)
        for condition in status.get("conditions") or ()
        if condition.get("type") not in {"Admitted", "Running", "AwaitingNodes"}
        and condition.get("status") == "True"
        and not (told and condition.get("message", "") in told)
    ]
    parts.append(Part(title="Also", lines=tuple(holding)))
    name = f"{seen.namespace}/{seen.name}"
    return Explanation(
        kind="gang", name=name, headline=headline, summary=summary(raw, seen, now=now), parts=_filled(parts)
    )


def holders_of(raw: Raw) -> list[Raw]:
    """What holds devices that a Gang could use. Those that are kept free for itself are told with its reservation."""
    meta, why = raw["metadata"], (raw.get("status") or {}).get("why") or {}
    own = f"{meta.get('namespace', '')}/{meta['name']}"
    return [each for each in why.get("holders") or () if each.get("gang") != own]


def holder_text(holder: Raw) -> str:
    if not holder.get("gang"):
        return f"claims outside any gang hold {holder['devices']}"
    return f"{gang_text(holder['gang'])} (queue {holder.get('queue') or '-'}) holds {holder['devices']}"


def _forecast(status: Raw, seen: Line, *, now: float) -> tuple[str, ...]:
    found = status.get("forecast") or {}
    if seen.phase != "Waiting" or not found:
        return ()
    said: tuple[str, ...] = ()
    if found.get("p50"):
        late = f"; by {found['p90']} with 90 % probability" if found.get("p90") else ""
        said = (
            with_time_left(f"by {found['p50']} with 50 % probability{late} (as of {found.get('asOf', '?')})", now=now),
        )
    return (*said, _sentence(found.get("because") or "")) if found.get("because") else said


def _nodes(status: Raw, *, now: float) -> tuple[str, ...]:
    """What becomes of its demand for nodes."""
    found = status.get("nodesAwaited") or {}
    if not found:
        return ()
    asked = f"asked for since {found['since']}, " if found.get("since") and found.get("state") == "Asked" else ""
    how = f"{asked}by mode {found.get('mode', '?')} of flavor {found.get('flavor', '?')}"
    said = with_time_left(_sentence(found.get("message") or ""), now=now)
    return tuple(each for each in (how if asked else "", said) if each)


def with_time_left(text: str, *, now: float) -> str:
    """The text, each time to come followed by what is left: `until 2026-11-21T14:02:11Z (5m left)`."""

    def left(found: re.Match[str]) -> str:
        try:
            seconds = timestamps.parse(found[1]) - now
        except ValueError:
            return found[0]
        return f"{found[0]} ({age(seconds)} left)" if seconds > 0 else found[0]

    return _TO_COME.sub(left, text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _advice(why: Raw) -> tuple[str, ...]:
    advice = [why["advice"]] if why.get("advice") else []
    if why.get("couldEverFit") is False:
        advice.append("waiting will not help: it would not run even with nothing else on this cluster")
    return tuple(advice)


def _pods(status: Raw, ready: int, size: int, members: int, nodes: Sequence[str]) -> str:
    return f"{ready} of {size} run, {members} exist" + (f"; on {_listed(nodes)}" if nodes else "")


def _listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more


def without_devices(seen: Line) -> str:
    """Which of its pods ask for no device, and what they do until it starts; "" where there are none."""
    if not seen.without_devices:
        return ""
    have = "have" if seen.phase in PENDING else "had"
    what = f"held until the others {have} their devices, and started with them (fairlead.dev/members: all)"
    return f"{_listed(seen.without_devices)}: {what}"


def _models(models: Raw) -> tuple[str, ...]:
    held = models.get("held") or ()
    if not held:
        return ()
    if models.get("rule") == "any":
        return (f"{', '.join(held)}; models may mix ({names.MODELS}: any)",)
    each = "one model for all" if len(held) == 1 else "one model for each worker group and kind of request"
    return (f"{', '.join(held)}; {each} ({names.MODELS}: same)",)


def _level(level: Raw) -> str:
    """One level of a gang's placement."""
    asked = f" ({level['asked']})" if level.get("asked") else ""
    count = level.get("domains", 0)
    text = f"{level['level']}{asked}: {count} domain{'s' if count != 1 else ''}"
    if level.get("apart") is not None and count > 1:
        apart = level["apart"]
        text += f", {apart} pair{'s' if apart != 1 else ''} of neighbouring ranks apart"
    return f"{text}; " + "; ".join(level.get("where") or ())


def _waited(status: Raw, seen: Line) -> str:
    if seen.waited_s is None:
        return ""
    if seen.phase in PENDING:
        return age(seen.waited_s) + ("" if evicted_at(status) is None else " since it was evicted")
    return f"{age(seen.waited_s)} until devices were given, at {status.get('admittedTime', '?')}"


def queue_explanation(
    raw: Raw, gangs: Sequence[Raw], pods: Sequence[Raw] = (), *, now: float, unseen: str = ""
) -> Explanation:
    """Explains a Queue and the gangs in it, some of which only `pods` show; `unseen` says which gangs the user may not list."""
    seen = queue_line(raw)
    found = [*(line(gang, now=now) for gang in gangs), *plain_pods.lines(pods, gangs, now=now)]
    own = order([each for each in found if each.queue == seen.name])
    waiting = [each for each in own if each.phase == "Waiting"]
    running = [each for each in own if each.phase in {"Admitted", "Running"}]
    shares = []
    for share in seen.shares:
        text = f"{share.flavor}: uses {share.used} of a fair share of {share.fair_share}; deserves {share.deserved}"
        text += f", at most {share.limit}" if share.limit is not None else ""
        shares.append(text + f"; with what waits it asks for {share.demand}")
    budget = (raw.get("spec") or {}).get("disruptionBudget")
    evictions: tuple[str, ...] = ()
    if budget:
        evictions = (f"{len(seen.evictions)} of at most {budget.get('evictions')} within {budget.get('window', '1h')}",)
    parts = [
        Part(title="On hold", lines=(seen.hold,)),
        Part(title="Problem", lines=(seen.problem,)),
        Part(title="Schedule", lines=seen.schedule),
        Part(title="Budget", lines=(with_time_left(seen.budget, now=now),)),
        Part(title="Wait target", lines=(f"95 of 100 gangs within {seen.wait_target}" if seen.wait_target else "",)),
        Part(title="Shares", lines=tuple(shares) or ("no quota of any flavor, and no use",)),
        Part(title="Evictions", lines=evictions),
        Part(
            title="Waiting, in order",
            lines=_some(
                [
                    f"{each.position or '-'}. {each.namespace}/{each.name} ({each.reason}): {each.why}"
                    for each in waiting
                ]
            ),
        ),
        Part(
            title="Running",
            lines=_some(
                [
                    f"{each.namespace}/{each.name}: {each.ready} of {each.size} pods, {age(each.age_s)}"
                    for each in running
                ]
            ),
        ),
        Part(title="Not shown", lines=(unseen,)),
    ]
    above = f", below {seen.parent}" if seen.parent else ""
    headline = f"queue {seen.name}{above}: {seen.running} running, {seen.waiting} waiting"
    return Explanation(kind="queue", name=seen.name, headline=headline, parts=_filled(parts))


def pod_explanation(pod: Raw, gang: Raw | None, *, now: float, devices: str = "") -> Explanation:
    """Explains a pod, and its gang where it has one; `devices` says how busy those of the gang, or else of the pod, are."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    on = f" on {spec['nodeName']}" if spec.get("nodeName") else ""
    conditions = []
    for condition in status.get("conditions") or ():
        kind, holds = condition.get("type"), condition.get("status")
        if (kind, holds) in {
            (names.EVICTING_CONDITION, "True"),
            (names.ADMITTED_CONDITION, "False"),
            ("PodScheduled", "False"),
        }:
            conditions.append(f"{kind}: {condition.get('reason', '')}: {condition.get('message', '')}")
    parts = [
        Part(title="Gates", lines=tuple(gates)),
        Part(title="Claims", lines=tuple(plain_pods.claims(pod))),
        Part(title="Devices", lines=(devices if gang is None else "",)),
        Part(title="Conditions", lines=tuple(conditions)),
    ]
    name = f"{meta['namespace']}/{meta['name']}"
    return Explanation(
        kind="pod",
        name=name,
        headline=f"pod {name}: {status.get('phase', 'Pending')}{on}",
        parts=_filled([*parts, Part(title="Fairlead", lines=("" if gang is not None else _alone(pod, spec, gates),))]),
        more=() if gang is None else (gang_explanation(gang, now=now, devices=devices),),
    )


def _alone(pod: Raw, spec: Raw, gates: Sequence[str]) -> str:
    """Why a pod has no Gang."""
    if plain_pods.is_plain(pod) and names.ADMISSION_GATE in gates:
        return (
            "it is a gang of one, and has no Gang yet: one is made when it has waited for some seconds; if there is none "
            "after that, the controller has not looked at it: see that it runs and leads"
        )
    if plain_pods.is_plain(pod):
        queue = plain_pods.queue_of(pod)
        of = f" of queue {queue}" if queue else ""
        return f"it is a gang of one{of} that did not wait: the controller chose its devices and released it"
    if names.ADMISSION_GATE in gates:
        return "its Gang does not exist yet: the controller has not looked at it; see that it runs and leads"
    if spec.get("resourceClaims"):
        return (
            f"it is in no gang: it was created without the scheduling gate {names.ADMISSION_GATE}, so kube-scheduler alone "
            "places it. If its claims ask for devices that Fairlead manages, the webhook did not see it (it was down, or the "
            "namespace is excluded): create the pod again"
        )
    return "it is in no gang: it asks for no device that Fairlead manages, and kube-scheduler alone places it"


def _filled(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The explanation without empty lines and empty parts."""
    kept = (Part(title=part.title, lines=tuple(text for text in part.lines if text)) for part in parts)
    return tuple(part for part in kept if part.lines)


def _some(texts: Sequence[str]) -> tuple[str, ...]:
    more = len(texts) - LISTED_MAX
    return (*texts[:LISTED_MAX], *((f"and {more} more: see them with gangs -A",) if more > 0 else ()))


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
