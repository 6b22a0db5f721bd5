"""The form of what if: fields as a reader fills them, read into a question, and what can be named in them; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import Scope
from fairlead.ui.what_if.question import SAMPLES_MAX, Question, horizon_s

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

    def question(self, drivers: tuple[str, ...]) -> Question:
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
