"""Where pages get their facts from."""

from __future__ import annotations

from typing import Protocol

from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import Facts


class Source(Protocol):
    async def facts(self) -> Facts:
        """What there is now, or was some seconds ago. Raises NotReadError where nothing was ever read."""
        ...

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        """Events on an object; none where they may not be listed, or cannot be."""
        ...
