"""Where pages get their facts from."""

from __future__ import annotations

from typing import Protocol

from fairlead.ui.model.facts import Facts


class Source(Protocol):
    async def facts(self) -> Facts:
        """What there is now, or was some seconds ago. Raises NotReadError where nothing was ever read."""
        ...
