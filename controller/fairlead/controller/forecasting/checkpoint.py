"""The history's ConfigMap: read once by each new leader, written when there is something new, at most every `WRITE_S`.

One small object in the controller's own namespace, rather than storage of its own. It is installed empty: the account creates none.
Where it cannot be read or written forecasts go on without a past; that is logged once.
"""

from __future__ import annotations

import logging

from fairlead.controller.forecasting.history import RunHistory
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

NAME = "fairlead-run-history"
KEY = "history.json"
WRITE_S = 300.0


class Checkpoint:
    def __init__(self, client: Client, namespace: str, history: RunHistory, *, clock: Clock) -> None:
        self.history = history
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._failed = False
        self._written = 0  # version of the history
        self._written_at = float("-inf")

    async def read(self) -> None:
        try:
            found = await self._client.get(resources.CONFIG_MAPS, NAME, self._namespace)
            self.history.restore((found.get("data") or {}).get(KEY) or "{}")
        except (errors.ApiError, ValueError) as error:
            self._fail("read", error)
        self._written = self.history.version

    async def write(self) -> None:
        """Where it is due."""
        history = self.history
        if history.version == self._written or self._clock() - self._written_at < WRITE_S:
            return
        self._written_at, version = self._clock(), history.version
        data = {KEY: history.text()}
        try:
            await self._client.patch(resources.CONFIG_MAPS, NAME, {"data": data}, namespace=self._namespace)
            self._written = version
        except errors.ApiError as error:
            self._fail("written", error)

    def _fail(self, verb: str, error: Exception) -> None:
        absent = isinstance(error, errors.NotFound)
        log.log(
            logging.DEBUG if self._failed else logging.WARNING,
            "ConfigMap %s/%s: history of run times not %s: %s; forecasts do without it%s",
            self._namespace, NAME, verb, error,
            "; it comes with the installation: run `helm upgrade`, or apply manifests/base" if absent else "",
        )  # fmt: skip
        self._failed = True
