"""What is asked: a change, and how far and how often to look ahead; and the page's form, whose fields are read into it.

Texts as users write them; `answer` reads them against a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.engine.forecast.what_if import ChangeError
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
NAMED_MAX = 300  # of each kind, beside the form


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Texts as they were filled in; several changes of a kind are separated by spaces."""

    add_nodes: str = ""
    remove: str = ""
    queue: str = ""
    manifests: str = ""
    horizon: str = USUAL
    samples: str = "1"

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Form:
        def text(name: str, usual: str = "") -> str:
            value = fields.get(name)
            return value.strip() if isinstance(value, str) and value.strip() else usual

        return cls(
            add_nodes=text("add-nodes"),
            remove=text("remove"),
            queue=text("queue"),
            manifests=text("manifests"),
            horizon=text("horizon", USUAL),
            samples=text("samples", "1"),
        )

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
class Named:
    """What a question may name."""

    nodes: tuple[str, ...]
    profiles: tuple[str, ...]
    queues: tuple[str, ...]


def named(facts: Facts, profiles: tuple[str, ...]) -> Named:
    nodes = () if facts.hardware is None else sorted(node.name for node in facts.hardware.nodes.all())
    queues = sorted(str(raw["metadata"]["name"]) for raw in facts.queues)
    return Named(nodes=tuple(nodes[:NAMED_MAX]), profiles=profiles, queues=tuple(queues[:NAMED_MAX]))


def why_not(scope: Scope) -> str:
    """Why a viewer may not ask: an answer names gangs, nodes and queues of all. "" where they may."""
    return "; ".join(filter(None, (scope.namespaces_why, scope.cluster_why, scope.queues_why)))
