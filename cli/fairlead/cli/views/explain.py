"""`fairlead explain POD|GANG|QUEUE`: finds the object and prints its explanation; for an unknown name, similar ones.

No controller log is needed: the text comes from the objects' status, in `explanations`.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import time
from typing import Annotated, Any

import typer

from fairlead.cli import completion, printer, reading
from fairlead.cli.options import Namespace
from fairlead.cli.printer import say
from fairlead.cli.reading import Shown
from fairlead.engine.inventory.inventory import Inventory
from fairlead.kube import resources
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.model.aligned import align_of, aligned_lines
from fairlead.ui.model.devices import busy_line, readable, readable_slices
from fairlead.ui.model.explanations import Explanation, gang_explanation, pod_explanation, queue_explanation
from fairlead.ui.model.plain_pods import gang_of
from fairlead.ui.reading.cluster import Cluster, NotReadError, list_if_allowed

NEAR_MAX = 4
READ: dict[str, Resource[Any]] = {"gang": resources.GANGS, "pod": resources.PODS, "queue": resources.QUEUES}


@dataclass(frozen=True, kw_only=True)
class Explain(Shown):
    """Explain the state of a pod, a gang or a queue: what blocks it, what holds its devices, what would change it."""

    target: Annotated[
        str,
        typer.Argument(
            help="pod/NAME, gang/NAME, queue/NAME; or a NAME, looked for as each.", autocompletion=completion.explained
        ),
    ]
    namespace: Namespace = None

    def run(self) -> int:
        kind, slash, name = self.target.rpartition("/")
        if slash and kind.rstrip("s") not in READ:
            say(f"{self.target}: cannot explain a {kind!r}; write pod/NAME, gang/NAME or queue/NAME", file=sys.stderr)
            return 2
        kinds = (kind.rstrip("s"),) if slash else tuple(READ)
        namespace = self.namespace or self.own_namespace

        async def look(cluster: Cluster) -> Explanation:
            refused: list[NotReadError] = []
            for each in kinds:
                try:
                    found = await _find(cluster, each, name, namespace)
                except NotReadError as error:  # what is meant may be of another kind
                    refused.append(error)
                    continue
                if found is not None:
                    return found
            if refused:
                raise refused[0]
            raise NotReadError(await _missing(cluster, kinds, name, namespace))

        explanation = self.ask(look)
        if self.output == "table":
            _print(explanation)
        else:
            printer.structured(asdict(explanation), self.output)
        return 0


async def _find(cluster: Cluster, kind: str, name: str, namespace: str) -> Explanation | None:
    now = time()
    if kind == "gang":
        raw = await cluster.get(resources.GANGS, name, namespace)
        if raw is None:
            return None
        devices, aligned = await _devices(cluster, raw, now=now)
        return gang_explanation(raw, now=now, devices=devices, aligned=aligned)
    if kind == "pod":
        pod = await cluster.get(resources.PODS, name, namespace)
        if pod is None:
            return None
        gang = await cluster.get(resources.GANGS, gang_of(pod), namespace)
        if gang is not None:
            devices, _ = await _devices(cluster, gang, now=now)
        elif (pod.get("status") or {}).get("phase") == "Running":
            claims = await list_if_allowed(cluster, resources.RESOURCE_CLAIMS, namespace)
            devices = busy_line(readable(claims), {str(pod["metadata"].get("uid", ""))}, now=now)
        else:
            devices = ""
        return pod_explanation(pod, gang, now=now, devices=devices)
    raw = await cluster.get(resources.QUEUES, name)
    if raw is None:
        return None
    try:
        return queue_explanation(raw, await cluster.list(resources.GANGS), await _pods(cluster), now=now)
    except NotReadError:  # a user of one namespace may list the gangs of that one
        pass
    try:
        unseen = f"gangs of other namespaces than {namespace}: you may not list them"
        gangs, pods = await cluster.list(resources.GANGS, namespace), await _pods(cluster, namespace)
        return queue_explanation(raw, gangs, pods, now=now, unseen=unseen)
    except NotReadError:
        unseen = f"its gangs: you may not list those of namespace {namespace}; name one of yours with -n"
        return queue_explanation(raw, [], now=now, unseen=unseen)


async def _pods(cluster: Cluster, namespace: str | None = None) -> list[Raw]:
    return await list_if_allowed(cluster, resources.raw(resources.PODS), namespace)


async def _devices(cluster: Cluster, gang: Raw, *, now: float) -> tuple[str, tuple[str, ...]]:
    """How busy the gang's devices are, and how they are aligned, where it runs and the user may list pods, claims and slices."""
    if (gang.get("status") or {}).get("phase") != "Running":
        return "", ()
    namespace, name = gang["metadata"]["namespace"], gang["metadata"]["name"]
    pods = [pod for pod in await list_if_allowed(cluster, resources.PODS, namespace) if gang_of(pod) == name]
    if not pods:
        return "", ()
    claims = list(readable(await list_if_allowed(cluster, resources.RESOURCE_CLAIMS, namespace)))
    aligned: tuple[str, ...] = ()
    if align_of(pods):
        inventory = Inventory()
        inventory.set_slices(readable_slices(await list_if_allowed(cluster, resources.RESOURCE_SLICES)))
        aligned = aligned_lines(pods, claims, inventory)
    return busy_line(claims, {str(pod["metadata"].get("uid", "")) for pod in pods}, now=now), aligned


async def _missing(cluster: Cluster, kinds: Sequence[str], name: str, namespace: str) -> str:
    """The message for a name that no object has: similar names, here or in other namespaces, else how to list all."""
    within = f" in namespace {namespace}" if set(kinds) != {"queue"} else ""
    what = "gang, pod or queue" if len(kinds) > 1 else kinds[0]
    text = f"no {what} is called {name}{within}"
    near: list[str] = []
    for kind in kinds:
        with contextlib.suppress(NotReadError):
            found = await cluster.list(READ[kind], None if kind == "queue" else namespace)
            near += [f"{kind}/{each}" for each in _close(name, [str(raw["metadata"]["name"]) for raw in found])]
    elsewhere: list[str] = []
    with contextlib.suppress(NotReadError):
        for kind in set(kinds) & {"gang", "pod"}:
            found = await cluster.list(READ[kind])
            elsewhere += [raw["metadata"]["namespace"] for raw in found if raw["metadata"]["name"] == name]
    if elsewhere:
        places = sorted(set(elsewhere))
        return f"{text}, but in {', '.join(places[:NEAR_MAX])}: {reading.program()} explain {name} -n {places[0]}"
    if near:
        return f"{text}; did you mean {', '.join(near[:NEAR_MAX])}?"
    lists = {"queue": "queues"}.get(kinds[0], "gangs -A")
    return f"{text}, nor anything like it; what there is: {reading.program()} {lists}"


def _close(name: str, known: Iterable[str]) -> list[str]:
    """Known names that resemble `name` or begin with it, the most similar first."""
    names = sorted(known)
    longer = [each for each in names if len(name) >= 3 and each.startswith(name)]
    return list(dict.fromkeys([*difflib.get_close_matches(name, names, NEAR_MAX), *longer]))[:NEAR_MAX]


def _print(explanation: Explanation) -> None:
    printer.paragraph(explanation.headline, bold=True)
    if explanation.summary:
        printer.paragraph(explanation.summary, indent=2)
    for part in explanation.parts:
        printer.paragraph(f"{part.title}:", indent=2)
        for text in part.lines:
            printer.paragraph(text, indent=4)
    for each in explanation.more:
        say()
        _print(each)
