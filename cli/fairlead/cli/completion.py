"""What a shell completes with: names of namespaces, gangs, queues, flavors and nodes, and contexts. With the user's own rights, and nothing where the
cluster does not answer at once.

kubectl asks `kubectl_complete-fairlead` for what follows `kubectl fairlead`: a candidate a line, then a directive of cobra's completions.
Source: kubectl's pkg/cmd/plugin/plugin_completion.go; cobra's ShellCompDirectiveNoFileComp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

from fairlead.cli import contexts

ANSWER_S = 3.0
NO_FILES: Final = ":4"
"""That no names of files are offered."""
Completer = Callable[[typer.Context], list[str]]
"""All candidates; typer leaves out those that do not begin with what is written."""


def _of(kind: str, *, suffix: str = "") -> Completer:
    def complete(ctx: typer.Context) -> list[str]:
        try:
            found = asyncio.run(asyncio.wait_for(_names(kind, ctx.params), ANSWER_S))
        except Exception:  # whatever is wrong with the cluster: a shell is no place to say it
            return []
        return [f"{name}{suffix}" for name in found]

    return complete


async def _names(kind: str, given: dict[str, Any]) -> list[str]:
    from fairlead.kube import resources
    from fairlead.kube.client import Client

    resource = resources.raw(getattr(resources, kind))
    kubeconfig = Path(given["kubeconfig"]) if given.get("kubeconfig") else None
    context = given.get("context")
    namespace = None
    if resource.namespaced and not given.get("everywhere"):
        namespace = given.get("namespace") or contexts.own_namespace(kubeconfig, context)
    async with Client.connect(kubeconfig, context=context, user_agent="fairlead-completion") as client:
        return sorted({str(each["metadata"]["name"]) for each in (await client.list(resource, namespace)).items})


namespaces, gangs, queues, nodes = _of("NAMESPACES"), _of("GANGS"), _of("QUEUES"), _of("NODES")
flavors = _of("FLAVORS")
gpus = _of("NODES", suffix="/")
"""NODE/, to which a GPU is added."""


def explained(ctx: typer.Context, incomplete: str) -> list[str]:
    """gang/NAME and queue/NAME; without a slash the names of gangs."""
    kind, slash, _ = incomplete.partition("/")
    found = queues(ctx) if kind == "queue" else gangs(ctx)
    return [f"{kind}/{each}" for each in found] if slash else found


def of_contexts(ctx: typer.Context) -> list[str]:
    kubeconfig = ctx.params.get("kubeconfig")
    return sorted(map(str, contexts.read(Path(kubeconfig) if kubeconfig else None)))
