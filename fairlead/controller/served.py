"""Which version of an API the cluster serves, for APIs that not every cluster has.

Exists so that what is optional is looked for in one way: once, when a leader begins; what is installed later the next leader
sees. Watches nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client

log = logging.getLogger(__name__)


async def version_of(client: Client, group: str, versions: Sequence[str], plural: str) -> str | None:
    """The first of these versions in which the resource is served. One that cannot be asked is not, and said so."""
    found = await _ask(client, f"/apis/{group}")
    served = {str(version.get("version")) for version in found.get("versions") or ()}
    for version in versions:
        if version not in served:
            continue
        found = await _ask(client, f"/apis/{group}/{version}")
        if any(each.get("name") == plural for each in found.get("resources") or ()):
            return version
    return None


async def _ask(client: Client, path: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = msgspec.json.decode(await client.request("GET", path))
    except errors.NotFound:
        return {}
    except errors.ApiError as error:
        log.warning("%s cannot be asked: %s; what it serves is not read", path, error)
        return {}
    return answer
