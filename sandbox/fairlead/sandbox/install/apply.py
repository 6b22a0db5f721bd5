"""Applies manifests to a cluster as `kubectl apply --server-side` would; `make demo` and e2e need no kubectl.

Finds each kind's resource by discovery, so it works on any cluster and for any kind. Waits for a CRD to be served before
it applies objects of it. Deletes in the opposite order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import Raw, Resource
from fairlead.sandbox.informers import served
from fairlead.sandbox.install.manifests import Manifest, in_order

FIELD_MANAGER = "fairlead-apply"
SERVED_TIMEOUT_S = 20.0
SERVED_POLL_S = 0.05


class Applier:
    """Applies to one cluster; caches discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: dict[tuple[str, str], Resource[Raw]] = {}

    async def apply(self, manifests: Iterable[Manifest]) -> list[Raw]:
        """Server-side apply of every object, in the order of `in_order`. Raises ApiError with a note that names the object."""
        applied = []
        for manifest in in_order(manifests):
            resource = await self.resource_of(manifest)
            metadata = manifest["metadata"]
            namespace = metadata.get("namespace", "default") if resource.namespaced else None
            try:
                done = await self._client.patch(
                    resource,
                    metadata["name"],
                    manifest,
                    namespace=namespace,
                    kind=Patch.APPLY,
                    field_manager=FIELD_MANAGER,
                    force=True,
                )
            except errors.ApiError as error:
                error.add_note(f"applying {manifest['kind']} {metadata['name']}")
                raise
            applied.append(done)
        return applied

    async def delete(self, manifests: Iterable[Manifest]) -> None:
        """Delete every object, last first; one that does not exist is no error."""
        for manifest in reversed(in_order(manifests)):
            resource = await self.resource_of(manifest)
            metadata = manifest["metadata"]
            namespace = metadata.get("namespace", "default") if resource.namespaced else None
            try:
                await self._client.delete(resource, metadata["name"], namespace, propagation="Background")
            except errors.NotFound:
                continue

    async def resource_of(self, manifest: Manifest) -> Resource[Raw]:
        """The resource that serves this kind. Asks again for SERVED_TIMEOUT_S; raises LookupError.

        The bound is on asking again, not on one answer: a slow apiserver is asked at least once, however short the bound.
        """
        wanted = (manifest["apiVersion"], manifest["kind"])
        give_up = asyncio.get_running_loop().time() + SERVED_TIMEOUT_S
        while wanted not in self._served and not await self._discover(*wanted):
            if asyncio.get_running_loop().time() >= give_up:
                raise LookupError(
                    f"{manifest['kind']} {manifest['metadata']['name']}: {wanted[0]} serves no kind {wanted[1]}; "
                    "install its CustomResourceDefinition first"
                )
            await asyncio.sleep(SERVED_POLL_S)
        return self._served[wanted]

    async def _discover(self, api_version: str, kind: str) -> bool:
        try:
            for resource, _ in await served(self._client, api_version):
                self._served[api_version, resource.kind] = resource
        except errors.NotFound:
            return False
        return (api_version, kind) in self._served
