"""What is asked: a change, and how far and how often to look ahead; and the page's form, whose fields are read into it.

Texts as users write them, or as they are made of what was chosen; `answer` reads them against a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.api.texts import natural
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.kube.resources import Raw
from fairlead.ui.model import queues
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import Scope

SAMPLES_MAX = 64


@dataclass(frozen=True, kw_only=True)
class Question:
    """`submit`: objects of manifests; `manifests`: the text of such, which the process that answers reads. `own_profiles`: whether nodes may be of a profile's file, and not of a bundled profile only."""

    add_nodes: Sequence[str] = ()
    remove: Sequence[str] = ()
    queue: Sequence[str] = ()
    submit: Sequence[dict[str, Any]] = field(default=())
    manifests: str = ""
    horizon_s: float = 86_400.0
    samples: int = 1
    drivers: tuple[str, ...] = (names.DRIVER,)
    shared_drivers: tuple[str, ...] = ()
    own_profiles: bool = False

    @property
    def empty(self) -> bool:
        return not (self.add_nodes or self.remove or self.queue or self.submit or self.manifests)


def horizon_s(text: str) -> float:
    """Raises ChangeError."""
    try:
        seconds = duration_s(text)
    except ValueError as error:
        raise ChangeError(f"--horizon: {error}") from None
    if seconds <= 0:
        raise ChangeError(f"--horizon {text}: nothing starts in no time; write how far to look ahead, such as 24h")
    return seconds


HORIZONS = ("90m", "6h", "24h", "7d")
USUAL = "24h"
TEXT_MAX = 2_000  # characters of a field but manifests
NAMED_MAX = 1_000  # nodes in a list; of more a name is written
QUEUES_MAX = 60  # whose numbers are shown; those of others are written
SET = "set:"  # begins the name of a number's field: set:PATH=PRESENT
_ADDED = re.compile(r"([0-9]{1,5})x(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Texts as they were filled in or chosen; several changes of a kind are separated by spaces."""

    add_nodes: str = ""
    remove: str = ""
    queue: str = ""
    manifests: str = ""
    horizon: str = USUAL
    samples: str = "1"

    @classmethod
    def of(cls, fields: Iterable[tuple[str, Any]]) -> Form:
        """A field that is there more than once, such as a list of which several were chosen, has all of its values.

        A number of nodes (`add-count`) belongs to what is copied in the same place (`add-like`), and the number of a queue is a change
        where it differs from the present one in its field's name.
        """
        every: dict[str, list[str]] = {}
        for name, value in fields:
            if isinstance(value, str):
                every.setdefault(name, []).append(value.strip())

        def text(name: str, *more: str) -> str:
            return " ".join(filter(None, (*every.get(name, ()), *more)))

        added = zip(every.get("add-count", ()), every.get("add-like", ()), strict=False)
        numbers = [
            (*name.removeprefix(SET).rpartition("="), values[-1])
            for name, values in every.items()
            if name.startswith(SET)
        ]
        return cls(
            add_nodes=text("add-nodes", *(f"{count}x{like}" for count, like in added if like)),
            remove=text("remove"),
            queue=text("queue", *(f"{path}={value}" for path, _, present, value in numbers if value != present)),
            manifests=text("manifests"),
            horizon=text("horizon") or USUAL,
            samples=text("samples") or "1",
        )

    @property
    def added(self) -> tuple[tuple[str, str], ...]:
        """The numbers and names of nodes to add that can be read."""
        return tuple(match.groups() for text in self.add_nodes.split() if (match := _ADDED.fullmatch(text)))  # type: ignore[misc]

    @property
    def set(self) -> dict[str, str]:
        """The values of queues' fields, by path."""
        return {path: value for path, _, value in (text.partition("=") for text in self.queue.split())}

    def question(self, drivers: tuple[str, ...], shared_drivers: tuple[str, ...] = ()) -> Question:
        """Raises ChangeError that names the field, its value, and how to write it."""
        for name in ("add_nodes", "remove", "queue", "horizon", "samples"):
            if len(getattr(self, name)) > TEXT_MAX:
                raise ChangeError(f"{name}: more than {TEXT_MAX} characters: ask in parts")
        if not (self.samples.isascii() and self.samples.isdigit() and 1 <= int(self.samples[:4]) <= SAMPLES_MAX):
            raise ChangeError(f"--samples {self.samples[:20]}: a number from 1 to {SAMPLES_MAX}")
        made = Question(
            add_nodes=self.add_nodes.split(),
            remove=self.remove.split(),
            queue=self.queue.split(),
            manifests=self.manifests,
            horizon_s=horizon_s(self.horizon),
            samples=int(self.samples),
            drivers=drivers,
            shared_drivers=shared_drivers,
        )
        if made.empty:
            raise ChangeError("nothing is changed: add or remove nodes, set a field of a queue, or submit manifests")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One that a change of a queue may set: `path` as `--queue` takes it, and what it is now. `whole`: it counts."""

    path: str
    name: str
    present: str
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a question may name. `numbers` by queue, of the first ones."""

    nodes: tuple[str, ...]
    profiles: tuple[str, ...]
    queues: tuple[str, ...]
    numbers: Mapping[str, tuple[Number, ...]]

    def others(self, form: Form) -> str:
        """Changes of queues that have no field of their own."""
        own = {number.path for numbers in self.numbers.values() for number in numbers}
        return " ".join(text for text in form.queue.split() if text.partition("=")[0] not in own)


def named(facts: Facts, profiles: tuple[str, ...]) -> Named:
    nodes = () if facts.hardware is None else sorted((node.name for node in facts.hardware.nodes.all()), key=natural)
    every = sorted(facts.queues, key=lambda raw: natural(str(raw["metadata"]["name"])))
    return Named(
        nodes=tuple(nodes),
        profiles=profiles,
        queues=tuple(str(raw["metadata"]["name"]) for raw in every),
        numbers={raw["metadata"]["name"]: tuple(_numbers(raw)) for raw in every[:QUEUES_MAX]},
    )


def _numbers(raw: Raw) -> Iterator[Number]:
    name, spec = raw["metadata"]["name"], raw.get("spec") or {}
    own = {quota.get("flavor"): quota for quota in spec.get("flavors") or ()}
    for share in queues.line(raw).shares:
        if share.flavor in own:
            weight = str(own[share.flavor].get("weight") or 1)
            for what, present in (("deserved", share.deserved), ("limit", share.limit or ""), ("weight", weight)):
                whole = what != "weight" and (not present or present.isdigit())
                yield Number(
                    path=f"{name}.{share.flavor}.{what}", name=f"{share.flavor} {what}", present=present, whole=whole
                )
    yield Number(path=f"{name}.priority", name="priority", present=str(spec.get("priority") or 0), whole=True)


def why_not(scope: Scope) -> str:
    """Why a viewer may not ask: an answer names gangs, nodes and queues of all. "" where they may."""
    return "; ".join(filter(None, (scope.namespaces_why, scope.cluster_why, scope.queues_why)))
