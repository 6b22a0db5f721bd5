"""Empties a namespace that is being deleted, then finalizes it; and populates each new one.

Emptying is the namespace controller's: every deletable namespaced kind that discovery lists, round after round until
nothing is left, then /finalize. Populating stands for the service account and root CA controllers: account `default` and
config map `kube-root-ca.crt`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Raw, Resource, raw
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import served
from fairlead.sandbox.objects import is_deleting, name_of, spec_of

log = logging.getLogger(__name__)

FINALIZER: Final = "kubernetes"
ROUND_S: Final = 0.25  # between two looks at what is still terminating
ROOT_CA: Final = "kube-root-ca.crt"


class NamespaceController(Loop[str]):
    name = "namespace controller"
    workers = 1

    def __init__(self, client: Client, *, ca_pem: str) -> None:
        super().__init__()
        self._client = client
        self._ca_pem = ca_pem
        self._namespaces = Informer(client, raw(NAMESPACES))
        self._namespaces.subscribe(self._note)

    def _note(self, change: Change[Raw]) -> None:
        if change.new is not None:
            self.queue.add(change.key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            await super().run()

    async def sync(self, key: str) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None:
            return
        if not is_deleting(namespace):
            await self._populate(key)
        elif await self._empty(key):
            await self._finalize(namespace)
        else:
            self.queue.add_after(key, ROUND_S)

    async def _populate(self, name: str) -> None:
        wanted: tuple[tuple[Resource[Raw], Raw], ...] = (
            (SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}),
            (CONFIG_MAPS, {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": self._ca_pem}}),
        )
        for resource, obj in wanted:
            try:
                await self._client.create(resource, obj, name)
            except errors.AlreadyExists:
                continue

    async def _empty(self, name: str) -> bool:
        """Request the deletion of everything in the namespace; true when nothing was left."""
        left = 0
        for kind in await self._kinds():
            try:
                items = (await self._client.list(kind, name)).items
                if items:
                    left += len(items)
                    await self._client.request("DELETE", kind.path(name), body={"propagationPolicy": "Background"})
            except (errors.NotFound, errors.Conflict):
                continue  # a kind that is no longer served, or an object that changed meanwhile: the next round decides
        return left == 0

    async def _finalize(self, namespace: Raw) -> None:
        kept = [name for name in spec_of(namespace).get("finalizers") or () if name != FINALIZER]
        if len(kept) == len(spec_of(namespace).get("finalizers") or ()):
            return
        body = {**namespace, "spec": {**spec_of(namespace), "finalizers": kept}}
        path = f"{NAMESPACES.path(None, name_of(namespace))}/finalize"
        await self._client.request("PUT", path, body={"apiVersion": "v1", "kind": "Namespace", **body})

    async def _kinds(self) -> list[Resource[Raw]]:
        """Every namespaced kind that can be listed and deleted, each once."""
        found: dict[tuple[str, str], Resource[Raw]] = {}
        groups = msgspec.json.decode(await self._client.request("GET", "/apis"))["groups"]
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        for api_version in versions:
            for resource, verbs in await served(self._client, api_version):
                if resource.namespaced and {"list", "deletecollection"} <= verbs:
                    found.setdefault((resource.group, resource.plural), resource)
        return list(found.values())
