"""What a piece of work takes of CPU and memory: measured in a child of its own, so that nothing that ran before counts."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tests.support import cpu
from tests.support.memory import peak

T = TypeVar("T")


class Spent(NamedTuple, Generic[T]):
    """`cpu_s`: as of the machine that bounds are meant for (`cpu`). `peak_bytes`: beyond what the child began with."""

    found: T
    cpu_s: float
    peak_bytes: int


def spent(work: Callable[[], T]) -> Spent[T]:
    """`work` is done in a forked child, one that has imported what its parent has; what it returns is pickled."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as answer:
                pickle.dump(_measured(work), answer)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert text, "the child ended without an answer"
    found: Spent[T] = pickle.loads(text)
    return found


def _measured(work: Callable[[], T]) -> Spent[T]:
    gc.freeze()  # what the parent has is neither looked at nor copied
    with cpu.measured() as taken, peak() as most:
        found = work()
    return Spent(found, taken.seconds, most.bytes)
