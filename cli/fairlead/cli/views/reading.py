"""How `queues`, `gangs` and `explain` read a cluster, and the messages when they cannot.

All three connect, list and fail alike: a refusal names the verb and the resource, a missing kind says that Fairlead is not
installed. Reads Queues, Gangs and pods; writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli.printer import say
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.ui.reading.cluster import Cluster, NotReadError

T = TypeVar("T")


async def check_namespace(cluster: Cluster, name: str) -> None:
    """Raises NotReadError when the namespace does not exist; nothing when that cannot be read."""
    client = cluster.client
    try:
        await client.get(resources.raw(resources.NAMESPACES), name)
    except errors.NotFound as error:
        near: list[str] = []
        with contextlib.suppress(errors.ApiError):
            known = (await client.list(resources.raw(resources.NAMESPACES))).items
            near = difflib.get_close_matches(name, [str(raw["metadata"]["name"]) for raw in known])
        hint = f"; did you mean {', '.join(near)}?" if near else f"; all gangs: {program()} gangs -A"
        raise NotReadError(f"no namespace is called {name}{hint}") from error
    except errors.ApiError:
        return  # a user of one namespace may not see it


def run(
    work: Callable[[Cluster], Awaitable[T]], *, kubeconfig: Path | None, context: str | None
) -> tuple[int, T | None]:
    """The exit code, and what `work` read, or None; messages go to standard error."""

    async def connected() -> T:
        async with Client.connect(kubeconfig, context=context, user_agent="fairlead-cli") as client:
            return await work(Cluster(client))

    try:
        return 0, asyncio.run(connected())
    except NotReadError as error:
        say(error, file=sys.stderr)
    except errors.ApiError as error:
        say(f"the cluster could not be asked: {error}", file=sys.stderr)
    except (CredentialsError, OSError) as error:
        known = _contexts(kubeconfig)
        if context and known and context not in known:
            say(f"the kubeconfig has no context {context!r}; it has {', '.join(sorted(known))}", file=sys.stderr)
            return 1, None
        more = (
            "" if "--kubeconfig" in str(error) else "; name one with --kubeconfig FILE, $KUBECONFIG or --context NAME"
        )
        say(f"no cluster to ask: {error}{more}", file=sys.stderr)
    return 1, None


def program() -> str:
    """The command as the user called it, for advice in messages."""
    return "kubectl fairlead" if Path(sys.argv[0]).name.startswith("kubectl-") else "fairlead"


def own_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace of the context, as kubectl would take it."""
    wanted = context or _read(kubeconfig).get("current-context")
    return str(_contexts(kubeconfig).get(wanted, {}).get("namespace") or "default")


def _contexts(kubeconfig: Path | None) -> dict[Any, Any]:
    """The kubeconfig's contexts by name; none where the file cannot be read."""
    try:
        return {each.get("name"): each.get("context") or {} for each in _read(kubeconfig).get("contexts") or ()}
    except (AttributeError, TypeError):
        return {}


def _read(kubeconfig: Path | None) -> dict[str, Any]:
    path = kubeconfig or Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or Path.home() / ".kube/config")
    try:
        found = yaml_text.document(files.read(Path(path), bytes_max=SMALL.bytes), SMALL)
    except (OSError, UnreadableError):
        return {}
    return found if isinstance(found, dict) else {}
