"""One connection to a cluster: lists and objects as the apiserver has them, and errors with a message for the user.

A refusal names the verb and the resource, a missing kind says that Fairlead is not installed. Writes nothing.
"""

from __future__ import annotations

from typing import Any

from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.reading.errors import NotReadError, not_read


class Cluster:
    """One connection; errors become NotReadError with a message for the user."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def client(self) -> Client:
        return self._client

    async def list(self, resource: Resource[Any], namespace: str | None = None) -> list[Raw]:
        """The objects in the order of their names. Raises NotReadError."""
        try:
            found = (await self._client.list(resources.raw(resource), namespace)).items
        except errors.ApiError as error:
            raise not_read(error, "list", resource, namespace) from error
        return sorted(found, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Raw | None:
        """None when there is none of that name. Raises NotReadError."""
        try:
            return await self._client.get(resources.raw(resource), name, namespace)
        except errors.NotFound as error:
            if error.details is None or not error.details.name:
                raise not_read(error, "get", resource, namespace) from error
            return None
        except errors.ApiError as error:
            raise not_read(error, "get", resource, namespace) from error


async def list_if_allowed(cluster: Cluster, resource: Resource[Any], namespace: str | None = None) -> list[Raw]:
    """Lists as `Cluster.list` does; nothing where the user may not list these. Raises NotReadError for other reasons."""
    try:
        return await cluster.list(resource, namespace)
    except NotReadError as error:
        if isinstance(error.__cause__, errors.Forbidden):
            return []
        raise
