"""What each view says of a gang, a queue or the cluster, by the names that the view has; a view is an attribute."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairlead.api import names
from fairlead.cli.operate.top import Drawing
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw
from tests.support.views import Answers, plain

STATES = ("held", "idle", "starting", "nominated", "free", "fragmented", "drained", "broken")
UNSAID = "the view does not say it of this one"


def written(p50: float | None, p90: float | None) -> tuple[str | None, str | None]:
    return tuple(None if at is None else timestamps.seconds(at) for at in (p50, p90))  # type: ignore[return-value]


def number(pattern: str, *, otherwise: Any = None) -> Callable[[Any], Any]:
    def get(text: Any) -> Any:
        found = re.search(pattern, str(text or ""))
        return otherwise if found is None else int(found[1])

    return get


@dataclass
class GangSeen:
    """What each view says of one gang, by the names that the view has."""

    answers: Answers
    id: str

    @property
    def phase(self) -> str:
        return str(self.status["phase"])

    @property
    def waits(self) -> bool:
        return self.phase == "Waiting"

    def view(self, name: str) -> Mapping[str, Any] | None:
        """None: it does not have the gang."""
        return getattr(self, name.replace(" ", "_").replace("-", "_"))  # type: ignore[no-any-return]

    @cached_property
    def raw(self) -> Raw:
        return self.answers.gangs[self.id]

    @cached_property
    def status(self) -> Raw:
        status = dict(self.raw["status"])
        conditions = {each["type"]: each for each in status.pop("conditions") if each["status"] == "True"}
        return {**status, **{f"is {kind}": each["message"] for kind, each in conditions.items()}}

    @cached_property
    def spec(self) -> Raw:
        return dict(self.raw["spec"])

    @cached_property
    def made(self) -> Raw:
        """Counted from pods and claims: what the cluster is."""
        name = self.id.partition("/")[2]
        pods = [
            raw
            for raw in self.answers.facts.pods
            if name in {raw["metadata"]["name"], raw["metadata"]["name"].rpartition("-")[0]}
        ]
        held = {
            claim.metadata.name.removesuffix("-gpu"): claim
            for claim in self.answers.facts.claims
            if claim.status.allocation
        }
        kinds: dict[str, int] = {}
        queue = self.answers.queues.get(self.status.get("queue", ""), {"spec": {}})
        hold = self.spec.get("hold") or queue["spec"].get("hold")
        for pod in pods:
            claim = held.get(pod["metadata"]["name"])
            for result in (
                claim.status.allocation.devices.results if claim is not None and claim.status.allocation else ()
            ):
                kind = "part" if "-mig-" in result.device else "whole"
                kinds[kind] = kinds.get(kind, 0) + (not result.admin_access)
        return {
            "pods": len(pods),
            "done": sum(pod["status"]["phase"] == "Succeeded" for pod in pods),
            "nodes": sorted({pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}),
            "devices": {kind: count for kind, count in kinds.items() if count},
            "evicted_at": next(
                (at for pod in pods if (at := (pod["metadata"]["annotations"]).get(names.EVICT_AT))), None
            ),
            "hold": None if hold is None else f"{hold['by']} since {hold['since']}",
            "age": self.answers.now - min(timestamps.parse(pod["metadata"]["creationTimestamp"]) for pod in pods),
        }

    @cached_property
    def engine(self) -> Raw | None:
        found = self.answers.waiting.get(self.id)
        if found is None or not self.waits:
            return None
        reason = found.reason
        return {
            "place": found.place,
            "queue": found.queue,
            "code": reason.code.value,
            "never": reason.never,
            "message": reason.message,
        }

    @cached_property
    def events(self) -> Raw | None:
        """Of its Gang, by what they are: told when it came into its phase."""
        name = self.id.partition("/")[2]
        said = [text for of, text in self.answers.events if of == name]
        return {
            "said": [text for text in said if not text.startswith("forecast")],
            "forecast": [text for text in said if text.startswith("forecast")],
        }

    @cached_property
    def listed(self) -> Raw:
        return self.answers.listed[self.id]

    @cached_property
    def table(self) -> Raw:
        return self.answers.table[self.id]

    @cached_property
    def explained(self) -> Raw:
        namespace, name = self.id.split("/")
        found = self.answers.cli_json("explain", f"gang/{name}", "-n", namespace)
        return {"headline": found["headline"], **{part["title"]: " ".join(part["lines"]) for part in found["parts"]}}

    @cached_property
    def page(self) -> Raw:
        """Its own, by the names of the figures."""
        text = self.answers.marked(f"/gangs/{self.id}")
        figures = re.findall(
            r"<li><b>(.*?)</b> ([a-z ]+)</li>", text.partition('class="figures"')[2].partition("</ul>")[0]
        )
        return {name: re.sub(r"<[^>]+>", "", value) for value, name in figures}

    @cached_property
    def page_of_all(self) -> Raw:
        titles = ("Gang", "Phase", "Queue", "Position", "GPUs", "Idle", "Pods", "Waited", "Age", "Forecast", "Why")
        return dict(zip(titles, self.answers.page_rows[self.id], strict=True))

    @cached_property
    def forecast(self) -> Raw | None:
        found = self.answers.forecast.gangs.get(self.id)
        return (
            None
            if found is None or not self.waits
            else {"never": found.never, "start": written(found.p50, found.p90), "because": found.because}
        )

    @cached_property
    def what_if(self) -> Raw | None:
        found = self.answers.what_if.before.starts.get(self.id)
        if found is None or not self.waits:
            return None
        waits = (found.p50_s, found.p90_s)
        at = written(*(None if wait is None else self.answers.now + wait for wait in waits))
        # Of what starts now the statuses say that it is being admitted: the forecast of the others is made without it.
        others = any(each.p50_s == 0.0 for each in self.answers.what_if.before.starts.values())
        return {
            "queue": found.queue,
            "never": bool(found.never),
            "on_hold": found.on_hold,
            "start": UNSAID if others or self.answers.old else at,
        }

    @cached_property
    def snapshot(self) -> Raw | None:
        """Its line on the pages of a snapshot's file, which has no members that have succeeded, and knows no phases but two."""
        if self.made["done"]:
            return None
        found = [
            each
            for each in self.answers.api("/gangs", facts=self.answers.planned)
            if f"{each['namespace']}/{each['name']}" == self.id
        ]
        return found[0] if found and found[0]["phase"] == self.phase else None


def _id(raw: Raw) -> str:
    return f"{raw['namespace']}/{raw['name']}"


@dataclass
class QueueSeen:
    answers: Answers
    id: str

    def view(self, name: str) -> Mapping[str, Any] | None:
        return getattr(self, name)  # type: ignore[no-any-return]

    @cached_property
    def made(self) -> Raw:
        """Counted from its gangs, by what their statuses say."""
        own = [raw["status"] for raw in self.answers.gangs.values() if raw["status"].get("queue") == self.id]
        phases = Counter(status["phase"] for status in own)
        places = sorted(status["position"] for status in own if status.get("position"))
        hold = self.answers.queues[self.id]["spec"].get("hold")
        plain_ones = [
            raw
            for raw in self.answers.listed.values()
            if raw["queue"] == self.id and _id(raw) not in self.answers.gangs
        ]
        considered = sum(bool(status.get("position")) for status in own)
        return {
            "places": places,
            "waiting": considered,
            "running": phases["Running"] + phases["Admitted"] + len(plain_ones),
            "hold": None if hold is None else f"{hold['by']} since {hold['since']}",
        }

    @cached_property
    def status(self) -> Raw:
        raw = self.answers.queues[self.id]
        usage = {f"{name} of gpu": str(value) for each in raw["status"]["usage"] for name, value in each.items()}
        holding = [
            each["message"]
            for each in raw["status"]["conditions"]
            if each["type"] == "OnHold" and each["status"] == "True"
        ]
        return {**raw["status"], **usage, "is OnHold": holding, "places": list(range(1, raw["status"]["waiting"] + 1))}

    @cached_property
    def listed(self) -> Raw:
        (found,) = [each for each in self.answers.cli_json("queues") if each["name"] == self.id]
        return {**found, **next(iter(found["shares"]), {})}

    @cached_property
    def table(self) -> Raw:
        """No cell of a queue with one flavor is blank."""
        head, *lines = self.answers.cli("queues").partition("\nqueue ")[0].partition("\nopen ")[0].splitlines()
        titles = re.split(r" {2,}", head.strip())
        rows = (dict(zip(titles, re.split(r" {2,}", line.strip()), strict=True)) for line in lines)
        return next(row for row in rows if row["QUEUE"] == self.id)

    @cached_property
    def explained(self) -> Raw:
        found = self.answers.cli_json("explain", f"queue/{self.id}")
        return {"headline": found["headline"], **{part["title"]: part["lines"] for part in found["parts"]}}

    @cached_property
    def page(self) -> str:
        found = (
            self.answers.marked("/queues").partition(f"<bdi>{self.id}</bdi></a>")[2].partition("</li>\n</ul>\n</dd>")[0]
        )
        text = plain(found)
        return {"counts": text, "figures": text}  # type: ignore[return-value]

    @cached_property
    def series(self) -> Raw:
        found = self.answers.metrics
        reasons = sum(int(value) for key, value in found.items() if key[:2] == ("fairlead_gangs_waiting", self.id))
        gangs = {state: int(found["fairlead_queue_gangs", self.id, state]) for state in ("waiting", "admitted")}
        return {"by reason": reasons, **gangs, "used": str(int(found.get(("fairlead_queue_used", self.id, "gpu"), 0)))}

    @cached_property
    def snapshot(self) -> Raw:
        (found,) = [each for each in self.answers.api("/queues", facts=self.answers.planned) if each["name"] == self.id]
        return {**found, **next(iter(found["shares"]), {})}

    @cached_property
    def what_if(self) -> Raw:
        (use,) = [each for each in self.answers.what_if.before.queues if each.name == self.id]
        (gpu,) = [each for each in use.flavors if each.flavor == "gpu"]
        return {"waiting": use.waiting, "running": use.admitted, "used": str(gpu.used), "fair": str(gpu.fair_share)}


def _counts(states: Mapping[str, int]) -> Raw:
    """What a view says by state, taken together."""

    def together(*names: str) -> int:
        return sum(states.get(name, 0) for name in names)

    return {
        "GPUs": together(*STATES),
        "held": together("held", "idle", "starting"),
        "free": together("free", "nominated", "fragmented"),
        "unavailable": together("drained", "broken"),
        **{name: together(name) for name in ("drained", "broken", "fragmented")},
    }


@dataclass
class ClusterSeen:
    answers: Answers
    id: str = "cluster"

    def view(self, name: str) -> Mapping[str, Any] | None:
        return getattr(self, name)  # type: ignore[no-any-return]

    @cached_property
    def map(self) -> Raw:
        phases = Counter(each["phase"] for each in self.answers.listed.values())
        counts = _counts(self.answers.api("/map")["counts"])
        return {**counts, "gangs": dict(phases), "waiting": phases["Waiting"]}

    @cached_property
    def made(self) -> Raw:
        """GPUs that are published, once each; those with a claim on them or on a part of them."""
        published, kept_back = set(), set()
        cordoned = {
            each["metadata"]["name"] for each in self.answers.client.lists["nodes"] if each["spec"].get("unschedulable")
        }
        for each in self.answers.client.lists["resourceslices"]:
            for device in each["spec"].get("devices", ()):
                published.add((each["spec"]["nodeName"], device["name"].partition("-mig-")[0]))
        for rule in self.answers.client.lists["devicetaintrules"]:
            kept_back.add((rule["spec"]["deviceSelector"]["pool"], rule["spec"]["deviceSelector"]["device"]))
        allocations = [claim.status.allocation for claim in self.answers.facts.claims]
        taken = {
            (result.pool, result.device.partition("-mig-")[0])
            for allocation in allocations
            for result in (() if allocation is None else allocation.devices.results)
            if not result.admin_access
        }
        drained = {each for each in published if each not in taken and (each in kept_back or each[0] in cordoned)}
        return {
            "GPUs": len(published),
            "held": len(taken),
            "free": len(published - taken - drained),
            "drained": len(drained),
            "broken": 0,
            "unavailable": len(drained),
        }

    @cached_property
    def page(self) -> Raw:
        text = self.answers.page("/map")
        legend = text.partition(" States ")[2]
        found = {state: number(rf"(\d+) {state}\b", otherwise=0)(legend) for state in STATES}
        return {**_counts(found), "GPUs": number(r"(\d+) GPUs on")(text)}

    @cached_property
    def top(self) -> Raw:
        head = "".join(cell.text for cell in Drawing().lines(self.answers.facts)[0])
        gangs, _, gpus = head.partition("GPUs: ")
        counts = {state: int(count) for count, state in re.findall(r"(\d+) (\w+) \[", gpus)}
        phases = {
            phase.capitalize(): int(count)
            for count, phase in re.findall(r"(\d+) ([a-z]+)", gangs.partition("gangs: ")[2])
        }
        return {**_counts(counts), "gangs": phases, "waiting": phases.get("Waiting", 0)}

    @cached_property
    def nodes(self) -> Raw:
        """The table of nodes of `fairlead top`, summed."""
        lines = ["".join(cell.text for cell in row) for row in Drawing().lines(self.answers.facts)]
        begin = next(place for place, line in enumerate(lines) if line.startswith("NODE "))
        rows = list(itertools.takewhile(bool, lines[begin + 1 :]))
        gpus, held, free = (sum(int(row.split()[column]) for row in rows) for column in (1, 2, 3))
        return {"GPUs": gpus, "held": held, "free": free, "unavailable": gpus - held - free}

    @cached_property
    def overview(self) -> Raw:
        found = self.answers.api("/")
        gpus = found["gpus"]
        every = {"GPUs": gpus["total"], "held": gpus["inUse"], "free": gpus["free"], "unavailable": gpus["unavailable"]}
        return {**_counts(gpus["states"]), **every, "waiting": found["waiting"]}

    @cached_property
    def tiles(self) -> Raw:
        """Of the overview's page; what is nought is left out in the small text."""
        text = self.answers.page("/")
        small = {state: number(rf"(\d+) {state}\b", otherwise=0)(text) for state in ("fragmented", "drained", "broken")}
        return {
            **small,
            "GPUs": number(r"GPUs in use of (\d+)")(text),
            "held": number(r"(\d+) GPUs in use")(text),
            "free": number(r"(\d+) free\b")(text),
            "unavailable": number(r"(\d+) unavailable")(text),
            "waiting": number(r"(\d+) gangs? waits?")(text),
        }

    @cached_property
    def snapshot(self) -> Raw:
        return _counts(self.answers.api("/map", facts=self.answers.planned)["counts"])

    @cached_property
    def what_if(self) -> Raw:
        """In use once what starts now has started: so many fewer of clusters in which something does."""
        before = self.answers.what_if.before
        starts = any(each.p50_s == 0.0 for each in before.starts.values())
        return {"GPUs": before.devices, "held": UNSAID if starts else before.used_now}
