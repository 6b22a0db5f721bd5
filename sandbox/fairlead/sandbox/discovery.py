"""The resources that a group version serves, in the form that the client addresses: for callers that take any kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.kube.client import Client
from fairlead.kube.resources import Raw, Resource


async def served(client: Client, api_version: str) -> Iterator[tuple[Resource[Raw], frozenset[str]]]:
    """Each resource of `v1` or `group/version` with its verbs, without subresources. NotFound where it is not served."""
    group, _, version = api_version.rpartition("/")
    prefix = f"/apis/{api_version}" if group else f"/api/{version}"
    listing: dict[str, Any] = msgspec.json.decode(await client.request("GET", prefix))
    return (
        (
            Resource(
                group=group,
                version=version,
                plural=entry["name"],
                kind=entry["kind"],
                namespaced=entry["namespaced"],
                type=dict,
            ),
            frozenset(entry["verbs"]),
        )
        for entry in listing.get("resources", ())
        if "/" not in entry["name"]
    )
