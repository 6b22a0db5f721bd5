"""Virtual time, for tests of anything that waits: it moves only when the test advances it, so no test sleeps."""

import asyncio
import heapq
import itertools


class VirtualTime:
    """`clock` and `sleep` to pass in; `advance` moves the time and wakes the sleepers that are due, in order."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []  # every delay that sleep was called with
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + max(0.0, seconds), next(self._sequence), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Moves the time from one due sleeper to the next, and lets tasks run at each."""
        end = self.now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self.now = max(self.now, due)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self.now = end
        await settle()


async def settle(rounds: int = 50) -> None:
    """Lets every task run until it waits for time or I/O."""
    for _ in range(rounds):
        await asyncio.sleep(0)
