"""Which namespaces a viewer's rights are asked for: those that pages could show something of, now or in the ledger.

The ledger is read beside, now and then: while it is slow or away, logins and pages do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from fairlead.history.ledger.store.errors import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube.limits import Sleep
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import namespaces_with_gangs
from fairlead.ui.reading.source import Source

log = logging.getLogger(__name__)
AGAIN_S = 60.0
Past = Callable[[], Awaitable[Collection[str]]]


class KnownNamespaces:
    """Call it for the namespaces. `past` reads those of the ledger, and raises LedgerError; None: there is none."""

    def __init__(self, source: Source, past: Past | None = None) -> None:
        self._source = source
        self._past = past
        self._of: Facts | None = None
        self._now: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()

    async def __call__(self) -> Collection[str]:
        """Raises NotReadError where the cluster was never read."""
        facts = await self._source.facts()
        if self._of is not facts:
            self._of, self._now = facts, namespaces_with_gangs(facts)
        return self._now | self._before

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Reads the past until it is cancelled."""
        while self._past is not None:
            try:
                self._before = frozenset(await self._past())
            except LedgerError as error:
                log.warning("namespaces of the past: %s; trying again in %.0f s", error, AGAIN_S)
            await sleep(AGAIN_S)


def of_ledger(where: str) -> Past:
    """`where`: as of `open_reader`."""

    def read() -> Collection[str]:
        with contextlib.closing(open_reader(where)) as reader:
            return reader.namespaces()

    return lambda: asyncio.to_thread(read)
