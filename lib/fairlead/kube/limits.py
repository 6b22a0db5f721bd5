"""Limits on the rate of requests: a token bucket, and jittered exponential backoff.

Clock, sleep and randomness are arguments.
"""

import dataclasses
from collections.abc import Awaitable, Callable
from random import Random

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class TokenBucket:
    """Limits calls to `burst` at once and `qps` a second in the long run; callers wait in order of arrival."""

    def __init__(self, *, qps: float, burst: int, clock: Clock, sleep: Sleep) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a limit of qps={qps}, burst={burst} would let nothing through")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(burst)
        self._at = clock()

    async def take(self) -> None:
        """Takes one token; waits until there is one."""
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._qps) - 1
        self._at = now
        if self._tokens < 0:  # the token is reserved; sleep until it exists
            await self._sleep(-self._tokens / self._qps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backoff:
    """The delay after n failures in a row (from 0): base * factor^n, at most max, plus a random part of it up to `jitter`.

    With the defaults: 0.2 to 0.3 s, 0.4 to 0.6 s, ... 30 to 45 s.
    """

    base_s: float = 0.2
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.5

    def delay(self, failures: int, random: Random) -> float:
        delay = min(self.max_s, self.base_s * self.factor ** min(failures, 32))
        return delay * (1 + self.jitter * random.random())
