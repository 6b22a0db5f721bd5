"""What the parts of one process read of a cluster: one informer for each resource, and which resources there are.

Control loops and scheduler take their caches from here, as in kube-controller-manager. Holds no decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from fairlead.kube.client import Client
from fairlead.kube.informer import Informer
from fairlead.kube.limits import Backoff
from fairlead.kube.resources import Raw, Resource, raw
from fairlead.sandbox.objects import controller_of, namespace_of, pod_claims

# Shorter than a real cluster's: the only apiserver is in this process, and faults should be over soon.
RECONNECT: Final = Backoff(base_s=0.05, max_s=2.0)

Index = Callable[[Raw], Iterable[str]]


def by_claim(pod: Raw) -> Iterator[str]:
    """Index of pods: the claims that a pod uses."""
    for _, name in pod_claims(pod):
        if name is not None:
            yield f"{namespace_of(pod)}/{name}"


def by_owner(obj: Raw) -> Iterator[str]:
    """Index: the UID of the controlling owner."""
    owner = controller_of(obj)
    if owner is not None:
        yield str(owner["uid"])


class Informers:
    """One informer per resource, created on first use, run together."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._made: dict[str, Informer[Raw]] = {}

    def of(
        self, resource: Resource[Any], *, indexes: Mapping[str, Index] | None = None, fields: str | None = None
    ) -> Informer[Raw]:
        """The informer of a resource. `indexes` and `fields` count on first use only."""
        known = self._made.get(str(resource))
        if known is None:
            known = Informer(self._client, raw(resource), indexes=indexes, fields=fields, backoff=RECONNECT)
            self._made[str(resource)] = known
        return known

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._made.values():
                group.create_task(informer.run(), name=f"informer {informer.resource}")

    async def synced(self) -> None:
        for informer in list(self._made.values()):
            await informer.synced.wait()


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
