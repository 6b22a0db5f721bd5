"""What is asked: a change, and how far and how often to look ahead. Texts as users write them; `answer` reads them against a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.engine.forecast.what_if import ChangeError

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
