"""Records every decision that is taken through `Engine.decide`, and sums them up case by case.

A case's record is a count and two digests, one over what was decided and one over the texts, in the order of the decisions. What
`decide` returns is recorded whether it was worked out anew or remembered from the decision before.
Keeps: `decide` is what it was before when the recording ends. A bound `decide` that was taken before it began is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fairlead.engine.plan.decide import Engine
from fairlead.engine.types.plan import Plan
from fairlead.history.recording import canonical


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of one case."""

    count: int
    decision: str  # sha256, hexadecimal
    texts: str  # sha256, hexadecimal


class Digest:
    """The record of the plans noted so far."""

    def __init__(self) -> None:
        self._count = 0
        self._decision = sha256()
        self._texts = sha256()

    def note(self, plan: Plan) -> None:
        self._count += 1
        self._decision.update(canonical.encode(canonical.decision(plan)) + b"\n")
        self._texts.update(canonical.encode(canonical.texts(plan)) + b"\n")

    @property
    def record(self) -> Record:
        return Record(self._count, self._decision.hexdigest(), self._texts.hexdigest())


@contextmanager
def instead(make: Callable[[Callable[..., Plan]], Callable[..., Plan]]) -> Iterator[None]:
    """Meanwhile, every engine's `decide` is what `make` makes of it."""
    original = Engine.decide
    Engine.decide = make(original)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Engine.decide = original  # type: ignore[method-assign]


@contextmanager
def listening(note: Callable[[Plan], None]) -> Iterator[None]:
    """Meanwhile, `note` gets every plan that `decide` returns."""

    def noting(original: Callable[..., Plan]) -> Callable[..., Plan]:
        def decide(*args: Any, **more: Any) -> Plan:
            plan = original(*args, **more)
            note(plan)
            return plan

        return decide

    with instead(noting):
        yield


def record(run: Callable[[], object]) -> Record:
    """Runs one case."""
    digest = Digest()
    with listening(digest.note):
        run()
    return digest.record
