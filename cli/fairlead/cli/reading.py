"""How commands ask a cluster with the user's rights, and the messages when they cannot.

All connect, list and fail alike: a refusal names the verb and the resource, a missing kind says that Fairlead is not installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fairlead.cli import contexts
from fairlead.cli.options import Context, Output
from fairlead.cli.printer import say
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.kube.flags import KUBECONFIG
from fairlead.ui.reading.cluster import Cluster, NotReadError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OfCluster:
    """A command that asks a cluster with the user's rights."""

    kubeconfig: Annotated[Path | None, KUBECONFIG] = None
    context: Context = None

    def ask(self, work: Callable[[Cluster], Awaitable[T]], *, unread: int = 1) -> T:
        """What `work` reads. Where it cannot, a message goes to standard error, and the command ends with the exit code `unread`."""

        async def connected() -> T:
            try:
                async with Client.connect(self.kubeconfig, context=self.context, user_agent="fairlead-cli") as client:
                    return await work(Cluster(client))
            except ExceptionGroup as group:  # of tasks side by side, as of a list that is followed
                raise _first(group) from None

        try:
            return asyncio.run(connected())
        except NotReadError as error:
            say(error, file=sys.stderr)
        except BrokenPipeError:
            raise  # of what the command prints, as `| head` closes it
        except errors.ApiError as error:
            say(f"the cluster could not be asked: {error}", file=sys.stderr)
        except (CredentialsError, OSError) as error:
            say(_no_cluster(error, contexts.read(self.kubeconfig), self.context), file=sys.stderr)
        raise typer.Exit(unread)

    @property
    def own_namespace(self) -> str:
        """The namespace of the context, as kubectl would take it."""
        return contexts.own_namespace(self.kubeconfig, self.context)

    @property
    def cluster_name(self) -> str:
        """What the context calls its cluster; "" without one."""
        return str(contexts.own(self.kubeconfig, self.context).get("cluster") or "")


@dataclass(frozen=True, kw_only=True)
class Shown(OfCluster):
    """One that shows what it read."""

    output: Output = "table"


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


async def user(client: Client) -> str:
    """Who asks, as the apiserver sees it; "" where it does not say, or not as one line of a usual length."""
    try:
        seen = await client.create(resources.SELF_SUBJECT_REVIEWS, {})
    except errors.ApiError:
        return ""
    found = str(((seen.get("status") or {}).get("userInfo") or {}).get("username") or "")
    return found if len(found) <= 256 and found.isprintable() else ""


def program() -> str:
    """The command as the user called it, for advice in messages."""
    return "kubectl fairlead" if Path(sys.argv[0]).name.startswith("kubectl-") else "fairlead"


def _first(group: ExceptionGroup[Exception]) -> Exception:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, ExceptionGroup) else found


def _no_cluster(error: Exception, known: dict[Any, Any], context: str | None) -> str:
    if context and known and context not in known:
        return f"the kubeconfig has no context {context!r}; it has {', '.join(sorted(known))}"
    more = "" if "--kubeconfig" in str(error) else "; name one with --kubeconfig FILE, $KUBECONFIG or --context NAME"
    return f"no cluster to ask: {error}{more}"
