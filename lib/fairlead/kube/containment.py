"""One item of many that cannot be computed is left out, and said to be, instead of ending the loop over all of them.

What a user wrote may break a computation in a way that nobody foresaw. In a loop over gangs that would stop the answers to all other users.
So each such loop contains the part that is about one gang, and nothing else: what is shared is to fail loudly.
The caller says what becomes of the error: it is counted, and a log line names the gang.

    with contained(lambda error: failures.setdefault(gang.id, described(error))):
        found[gang.id] = compute(gang)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
TEXT_MAX = 300


@contextmanager
def contained(failed: Callable[[Exception], object]) -> Iterator[None]:
    """`failed` is called with what the block raised. What ends a program or a task is raised as ever."""
    try:
        yield
    except Exception as error:  # any: that is the purpose
        failed(error)


def computed(make: Callable[[], T], instead: Callable[[Exception], T]) -> T:
    """What `make` returns; where it raises, what stands in its place and says so."""
    try:
        return make()
    except Exception as error:  # any: that is the purpose
        return instead(error)


def described(error: Exception) -> str:
    """Its kind and text, of bounded length."""
    return f"{type(error).__name__}: {error}"[:TEXT_MAX]
