"""Flags of the subcommands that ask a cluster: `queues`, `gangs`, `explain`; also as `kubectl fairlead …`.

The flags that they share are declared once. Each module is imported when it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Cluster to ask. Default: $KUBECONFIG, ~/.kube/config.", exists=True, dir_okay=False),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: its current one.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Default: the context's namespace.")]
Output = Annotated[
    Literal["table", "json", "yaml"],
    typer.Option("--output", "-o", help="A table for people; json or yaml for programs."),
]


def register(app: typer.Typer) -> None:
    for command in (queues, gangs, explain):
        app.command(rich_help_panel="Ask a cluster")(command)


def queues(kubeconfig: Kubeconfig = None, context: Context = None, output: Output = "table") -> None:
    """Show the tree of queues: what each uses, its fair share, what it deserves, and how many gangs wait in it."""
    from fairlead.cli.views.queues import show

    raise typer.Exit(show(kubeconfig=kubeconfig, context=context, output=output))


def gangs(
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """List gangs: phase, queue, place in line, pods, nodes, and why they wait."""
    from fairlead.cli.views.gangs import show
    from fairlead.cli.views.reading import own_namespace

    chosen = None if everywhere else namespace or own_namespace(kubeconfig, context)
    raise typer.Exit(show(namespace=chosen, kubeconfig=kubeconfig, context=context, output=output))


def explain(
    target: Annotated[str, typer.Argument(help="pod/NAME, gang/NAME, queue/NAME; or a NAME, looked for as each.")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Explain the state of a pod, a gang or a queue: what blocks it, what holds its devices, what would change it."""
    from fairlead.cli.views.explain import show
    from fairlead.cli.views.reading import own_namespace

    chosen = namespace or own_namespace(kubeconfig, context)
    raise typer.Exit(show(target, namespace=chosen, kubeconfig=kubeconfig, context=context, output=output))
