"""Flags of `hold`, `resume`. Modules are imported when called."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from fairlead.cli.views.commands import Context, Kubeconfig, Namespace

PANEL = "Operate"
hold_app = typer.Typer(
    help="Admit nothing of a gang or queue until it is resumed; what runs goes on, without --evict.",
    no_args_is_help=True,
)
resume_app = typer.Typer(help="End a hold.", no_args_is_help=True)
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, in one line; it stands wherever the hold shows.")]
Evict = Annotated[
    bool, typer.Option("--evict", help="Evict what runs, too: with its checkpoint-grace, as budgets allow.")
]
Said = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="json: one object for programs.")]


def register(app: typer.Typer) -> None:
    for name, group in (("hold", hold_app), ("resume", resume_app)):
        app.add_typer(group, name=name, rich_help_panel=PANEL)


@hold_app.command("gang")
def hold_gang(
    name: Annotated[str, typer.Argument(help="The gang; a pod without a gang is one of its own name.")],
    namespace: Namespace = None,
    reason: Reason = "",
    evict: Evict = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Said = "text",
) -> None:
    """Put a gang on hold: it keeps its place and age, and is not admitted. Again: changes nothing but to add --evict."""
    from fairlead.cli.operate.hold import run
    from fairlead.cli.views.reading import own_namespace

    chosen = namespace or own_namespace(kubeconfig, context)
    raise typer.Exit(
        run(
            "gang", name, action="hold", namespace=chosen, reason=_reason(reason), evict=evict, now=time.time(),
            output=output, kubeconfig=kubeconfig, context=context,
        )
    )  # fmt: skip


@hold_app.command("queue")
def hold_queue(
    name: Annotated[str, typer.Argument(help="The queue; those below it are on hold with it.")],
    reason: Reason = "",
    evict: Evict = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Said = "text",
) -> None:
    """Put a queue on hold: no gang of it, or of the queues below it, is admitted."""
    from fairlead.cli.operate.hold import run

    raise typer.Exit(
        run(
            "queue", name, action="hold", namespace=None, reason=_reason(reason), evict=evict, now=time.time(),
            output=output, kubeconfig=kubeconfig, context=context,
        )
    )  # fmt: skip


@resume_app.command("gang")
def resume_gang(
    name: Annotated[str, typer.Argument(help="The gang.")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Said = "text",
) -> None:
    """End the hold of a gang. One that an operator wrote takes the right that it was written with."""
    from fairlead.cli.operate.hold import run
    from fairlead.cli.views.reading import own_namespace

    chosen = namespace or own_namespace(kubeconfig, context)
    raise typer.Exit(
        run("gang", name, action="resume", namespace=chosen, output=output, kubeconfig=kubeconfig, context=context)
    )


@resume_app.command("queue")
def resume_queue(
    name: Annotated[str, typer.Argument(help="The queue.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Said = "text",
) -> None:
    """End the hold of a queue; holds of queues above it, and of its gangs, stay."""
    from fairlead.cli.operate.hold import run

    raise typer.Exit(
        run("queue", name, action="resume", namespace=None, output=output, kubeconfig=kubeconfig, context=context)
    )


def _reason(text: str) -> str:
    from fairlead.cli.operate.hold import checked_reason

    try:
        return checked_reason(text.strip())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--reason") from None
