"""What the apiserver was found to keep of this node's slices: asked as a dry run, corrected by each slice that was stored.

Publisher asks before its first write, and passes on what a stored slice lost; `changed` is called at once with what follows, before
anything else is written. What is wanted and not kept is asked for again every `ASK_AGAIN_S`: a gate may be turned on. While all of it
is kept, nothing is asked: the next write tells.
Keeps: nothing is believed to be kept that an answer lacked; where the dry run is refused for another reason, counters are not
believed to be kept, and `problem` has the reason.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection
from random import Random

from fairlead.api.withheld import Group
from fairlead.driver.publish import trial
from fairlead.driver.publish.kept import ALL, UNKNOWN, Kept, Layout
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Sleep
from fairlead.kube.resources import RESOURCE_SLICES, raw

log = logging.getLogger(__name__)

SLICES = raw(RESOURCE_SLICES)
ASK_AGAIN_S = 600.0
_REFUSED = (errors.Invalid, errors.Forbidden, errors.BadRequest, errors.MethodNotAllowed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`lacking` is what is wanted and not kept; `problem` why that could not be asked, or empty."""

    kept: Kept
    lacking: tuple[Group, ...]
    problem: str = ""

    @classmethod
    def nothing(cls) -> Found:
        return cls(kept=UNKNOWN, lacking=())


class Keeping:
    """`wanted` are the groups of fields that this node needs. `changed` is called when anything of `found` is other than before."""

    def __init__(
        self,
        client: Client,
        *,
        node_name: str,
        wanted: Collection[Group],
        changed: Callable[[Found], None],
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self.found = Found.nothing()
        self.due = True
        """Whether it has to be asked before the next write."""
        self._client = client
        self._node_name = node_name
        self._wanted = frozenset(wanted)
        self._changed = changed
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter

    async def run(self, wake: Callable[[], None]) -> None:
        """Never returns. Calls `wake` when it is due again."""
        while True:
            await self._sleep(ASK_AGAIN_S * self._random.uniform(0.9, 1.1))
            if self.found.lacking:
                self.due = True
                wake()

    async def ask(self) -> None:
        """Raises an ApiError that another try may not meet; then nothing has changed."""
        try:
            kept, problem = await self._answer(), ""
        except _REFUSED as error:
            kept, problem = UNKNOWN, f"{type(error).__name__}: {error}"
        self.due = False
        self._set(kept, problem)

    def lost(self, groups: Collection[Group]) -> None:
        """A slice was stored without these."""
        self._set(self.found.kept.without(groups), "")

    async def _answer(self) -> Kept:
        """The layouts one after the other: an apiserver refuses the other one's with 422."""
        if "counters" not in self._wanted:
            return dataclasses.replace(await self._try("split"), counters=ALL.counters)
        try:
            return await self._try("combined")
        except errors.Invalid:
            return await self._try("split")

    async def _try(self, layout: Layout) -> Kept:
        slices = trial.trial(self._node_name, self._wanted, layout)
        answers = [await self._client.create(SLICES, each, dry_run=True) for each in slices]
        return trial.answered(layout, slices, answers)

    def _set(self, kept: Kept, problem: str) -> None:
        found = Found(kept=kept, lacking=kept.lacking(self._wanted), problem=problem)
        if found != self.found:
            self.found = found
            self._changed(found)
