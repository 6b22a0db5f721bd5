"""What could not be computed for one object of many: counted, and logged with its name; the loop over the others goes on.

Some of these loops run each second. What is said of an object is logged again only when it is something else, or after `AGAIN_S`.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from functools import partial

from prometheus_client import Counter

from fairlead.kube.containment import contained, described
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

AGAIN_S = 600.0
KNOWN_MAX = 10_000


class Failures:
    """`errors`: the counter of unexpected errors, by `where`."""

    def __init__(self, errors: Counter, *, clock: Clock = time.monotonic) -> None:
        self._errors = errors
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[str, float]] = {}  # by where and what: the text, and when

    def contained(self, where: str, what: str) -> AbstractContextManager[None]:
        """`where`: the loop, one of few. `what`: the object, such as `gang ml/train`."""
        return contained(partial(self._failed, where, what))

    def note(self, where: str, what: str, text: str) -> None:
        """Of what was raised elsewhere, such as in another process."""
        self._note(where, what, text, None)

    def _failed(self, where: str, what: str, error: Exception) -> None:
        self._note(where, what, described(error), error)

    def _note(self, where: str, what: str, text: str, error: Exception | None) -> None:
        self._errors.labels(where).inc()
        key, now = (where, what), self._clock()
        before = self._said.get(key)
        if before is not None and before[0] == text and now - before[1] < AGAIN_S:
            return
        if len(self._said) >= KNOWN_MAX:
            self._said.clear()
        self._said[key] = (text, now)
        log.error("%s: %s is left out, the others are not: %s", where, what, text, exc_info=error)
