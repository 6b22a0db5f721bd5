"""A whole apiserver without sockets for tests: the real kinds, admission and RBAC, a clock that stands."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random

from fairlead.kube.releases import Minor
from fairlead.sandbox.apiserver.admission.calling import Resolver
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.apiserver.wire.exchange import Response
from fairlead.sandbox.release import NEWEST, Release
from tests.support.apiserver.inside import NOON, Inside


class Served(Inside):
    """`Inside`, with everything that a listening server has. `close()` it."""

    def __init__(
        self, workdir: Path, *, now: datetime = NOON, random: Random | None = None, release: Release | Minor = NEWEST
    ) -> None:
        self.now = now
        random = random or Random(7)
        self._server = ApiServer(workdir=workdir, clock=lambda: self.now, random=random, release=release)
        self.state = self._server.state
        self.faults = self._server.faults
        self.dispatcher = self._server.dispatcher
        self.last: Response | None = None

    async def close(self) -> None:
        await self._server.stop()

    def resolve_services(self, resolve: Resolver) -> None:
        """Say where webhooks' Services are."""
        from fairlead.sandbox.apiserver import admission

        store = partial(self.state.replace, "", "resourcequotas")
        self.state.admission = admission.chain(self.state, resolve=resolve, store=store)

    async def refused(self, path: str, body: Json) -> list[str]:
        """The `field: message` of each complaint about a new object."""
        status, answer = await self.post(path, body)
        assert status == 422, answer
        return [f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"]]
