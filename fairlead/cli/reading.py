"""What `queues`, `gangs` and `explain` read of a cluster, and how they say that they could not.

Exists so that all three connect, list and fail alike: a refusal names the verb and the resource, a missing kind says that
Fairlead is not installed. Reads Queues, Gangs and pods; writes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.kube.resources import Raw, Resource

T = TypeVar("T")


class NotReadError(Exception):
    """Something could not be read; the message is for the user."""


class Cluster:
    """One connection, and lists that fail in words."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, resource: Resource[Any], namespace: str | None = None) -> list[Raw]:
        """In the order of their names. Raises NotReadError."""
        try:
            found = (await self._client.list(resources.raw(resource), namespace)).items
        except errors.ApiError as error:
            raise _said(error, "list", resource, namespace) from error
        return sorted(found, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Raw | None:
        """None when there is none of that name. Raises NotReadError."""
        try:
            return await self._client.get(resources.raw(resource), name, namespace)
        except errors.NotFound as error:
            if error.details is None or not error.details.name:
                raise _said(error, "get", resource, namespace) from error
            return None
        except errors.ApiError as error:
            raise _said(error, "get", resource, namespace) from error


def run(
    work: Callable[[Cluster], Awaitable[T]], *, kubeconfig: Path | None, context: str | None
) -> tuple[int, T | None]:
    """The exit code, and what `work` read; what went wrong is on standard error."""

    async def connected() -> T:
        async with Client.connect(kubeconfig, context=context, user_agent="fairlead-cli") as client:
            return await work(Cluster(client))

    try:
        return 0, asyncio.run(connected())
    except NotReadError as error:
        print(error, file=sys.stderr)
    except errors.ApiError as error:
        print(f"the cluster could not be asked: {error}", file=sys.stderr)
    except (CredentialsError, OSError) as error:
        print(f"no cluster to ask: {error}; name one with --kubeconfig or $KUBECONFIG", file=sys.stderr)
    return 1, None


def own_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace of the context, as kubectl would take it."""
    path = kubeconfig or Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or Path.home() / ".kube/config")
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        wanted = context or found.get("current-context")
        contexts = {each.get("name"): each.get("context") or {} for each in found.get("contexts") or ()}
        return str(contexts.get(wanted, {}).get("namespace") or "default")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return "default"


def _said(error: errors.ApiError, verb: str, resource: Resource[Any], namespace: str | None) -> NotReadError:
    kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f" in namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    if isinstance(error, errors.Forbidden):
        hint = f"`kubectl auth can-i {verb} {kind}{f' -n {namespace}' if namespace else ''}` says no"
        more = "; with -n NAMESPACE less is needed" if resource.namespaced and not namespace else ""
        return NotReadError(f"you may not {verb} {kind}{where}: {hint}; ask for a role with that verb{more}")
    if isinstance(error, errors.NotFound) and resource.group.endswith("fairlead.dev"):
        return NotReadError(f"this cluster knows no {kind}: Fairlead's CustomResourceDefinitions are not installed")
    if isinstance(error, errors.Unauthorized):
        return NotReadError(f"the cluster does not know you: {error.message}; renew your credentials")
    return NotReadError(f"cannot {verb} {kind}{where}: {error}")
