"""One connection to a cluster, and what is said when it cannot be read: which objects, why, and the next step.

A refusal names the verb and the resource, a missing kind says that Fairlead is not installed. Writes nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from fairlead.bounded import json_text
from fairlead.bounded.limits import UnreadableError
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.model.facts import Facts


class NotReadError(Exception):
    """Something could not be read; the message is for the user."""


def not_read(error: errors.ApiError, verb: str, resource: Resource[Any], namespace: str | None) -> NotReadError:
    """The error as a user needs it: what could not be read, why, and the next step."""
    kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f" in namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    if isinstance(error, errors.Forbidden):
        hint = f"`kubectl auth can-i {verb} {kind}{f' -n {namespace}' if namespace else ''}` says no"
        more = "; with -n NAMESPACE less is needed" if resource.namespaced and not namespace else ""
        return NotReadError(f"you may not {verb} {kind}{where}: {hint}; ask for a role with that verb{more}")
    if isinstance(error, errors.NotFound) and resource.group.endswith("fairlead.dev"):
        return NotReadError(
            f"this cluster serves no {kind}: Fairlead is not installed on it; install it (docs/install.md), or name another "
            "cluster with --context"
        )
    if isinstance(error, errors.Unauthorized):
        return NotReadError(f"the cluster does not know you: {error.message}; renew your credentials")
    if isinstance(error, errors.Unreachable):
        return NotReadError(
            f"the cluster does not answer: {error}; see that it runs and that the kubeconfig's context is the one you mean "
            "(--context)"
        )
    return NotReadError(f"cannot {verb} {kind}{where}: {error}")


def rules_not_read(error: errors.ApiError, resource: Resource[Any]) -> str:
    """What pages lack without DeviceTaintRules."""
    return (
        f"{not_read(error, 'list', resource, None)}. A GPU that such a rule keeps from claims, as fairlead device drain does, is shown as "
        "one without it"
    )


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

    async def document(self, path: str) -> Raw:
        """What the apiserver says at a path of discovery, such as /apis. Raises NotReadError."""
        try:
            found = json_text.value(await self._client.request("GET", path))
            if isinstance(found, dict):
                return found
            raise UnreadableError("the answer is no object")
        except (errors.ApiError, UnreadableError) as error:
            hint = "; ask for the role system:discovery" if isinstance(error, errors.Forbidden) else ""
            raise NotReadError(f"the cluster's API groups cannot be read at {path}: {error}{hint}") from error

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


class Source(Protocol):
    async def facts(self) -> Facts:
        """What there is now, or was some seconds ago. Raises NotReadError where nothing was ever read."""
        ...

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        """Events on an object; none where they may not be listed, or cannot be."""
        ...
