"""The snapshot of a live cluster, read with the user's own rights: what the controller would decide on now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.controller.rehearsal import Unread, observe
from fairlead.ui.reading.errors import NotReadError, not_read

if TYPE_CHECKING:
    from fairlead.engine.snapshot import Snapshot
    from fairlead.kube.client import Client


async def read(client: Client, drivers: tuple[str, ...]) -> tuple[Snapshot, float]:
    """The snapshot, and its time in unix seconds. Raises NotReadError."""
    try:
        return await observe(client, drivers)
    except Unread as error:
        raise not_read(error.error, "list", error.resource, None) from error
    except TimeoutError as error:
        raise NotReadError(str(error)) from error
