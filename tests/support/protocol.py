"""What the parts that write a gang's protocol work on, for tests of one part: a writer that records, and caches of nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.telemetry import Telemetry
from fairlead.kube import core, objects

Write = tuple[str, str]
"""The name of a write, and of the object that it is about; "" where it is about none."""


class RecordingWriter:
    """Each of the protocol's writes by its name. What it returns or raises is `answers`, else `answer` of that name, else None."""

    def __init__(self, answers: Mapping[Write, object] | None = None, **answer: object) -> None:
        self.writes: list[Write] = []
        self.options: dict[Write, dict[str, Any]] = {}
        self._answers = dict(answers or {})
        self._answer = answer

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def write(about: object = None, *more: object, **options: Any) -> Any:
            meta: objects.ObjectMeta | None = getattr(about, "metadata", None)
            key = (name, meta.name if meta is not None else "")
            self.writes.append(key)
            self.options[key] = options
            answer = self._answers.get(key, self._answer.get(name))
            if isinstance(answer, Exception):
                raise answer
            return about if answer is Ellipsis else answer

        return write

    def of(self, name: str) -> list[str]:
        """The objects that this write was about, in order."""
        return [about for write, about in self.writes if write == name]


def caches(lookup: object = None, **more: object) -> Any:
    """Which show pods as they are given."""

    def latest(pod: core.Pod) -> core.Pod:
        return pod

    rules = SimpleNamespace(queue_of=lambda gang_id: "", bounds=lambda gang: SimpleNamespace(termination_grace_s=30.0))
    known: dict[str, Any] = {"gangs": {}, "gang_object": lambda gang_id: None, "rules": rules}
    return SimpleNamespace(latest=latest, lookup=lookup, **(known | more))


class Silent:
    """Takes every call, as events and traces that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **more: None


def telemetry() -> Telemetry:
    """Metrics that count, for nobody."""
    silent: Any = Silent()
    return Telemetry(silent, Metrics(), silent)
