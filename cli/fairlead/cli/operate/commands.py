"""Flags of `hold`, `resume`, `device`, `top`. Modules are imported when called."""

from __future__ import annotations

import re
import time
from typing import Annotated, Literal

import typer

from fairlead.cli.views.commands import Context, Kubeconfig, Namespace, Output

PANEL = "Operate"
hold_app = typer.Typer(
    help="Admit nothing of a gang or queue until it is resumed; what runs goes on, without --evict.",
    no_args_is_help=True,
)
device_app = typer.Typer(help="Keep new claims off a GPU, and give it back.", no_args_is_help=True)
resume_app = typer.Typer(help="End a hold.", no_args_is_help=True)
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, in one line; it stands wherever the hold shows.")]
Evict = Annotated[
    bool, typer.Option("--evict", help="Evict what runs, too: with its checkpoint-grace, as budgets allow.")
]
Said = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="json: one object for programs.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Ask a cluster")(top)
    for name, group in (("hold", hold_app), ("resume", resume_app), ("device", device_app)):
        app.add_typer(group, name=name, rich_help_panel=PANEL)


def top(
    sort: Annotated[
        Literal["line", "name", "age", "size", "queue"],
        typer.Option(help="Order of gangs; line: waiting ones first, in the order of their queues."),
    ] = "line",
    sort_queues: Annotated[
        Literal["tree", "used", "over", "waiting"],
        typer.Option("--sort-queues", help="Order of queues; over: most above the fair share first."),
    ] = "tree",
    sort_nodes: Annotated[
        Literal["name", "free", "held", "broken"], typer.Option("--sort-nodes", help="Order of nodes.")
    ] = "name",
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Gangs of this one only. Default: of all that you may see.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture, in full; so it is into a pipe, too.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.5, max=3600, help="Seconds between two pictures.")
    ] = 2.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Watch queues, nodes' GPUs and gangs in the terminal; Ctrl-C ends it. Each GPU is one letter, the first line says which."""
    from fairlead.cli.operate.frame import Wish
    from fairlead.cli.operate.top import top as run
    from fairlead.cli.views.reading import own_namespace

    wish = Wish(gangs=sort, queues=sort_queues, nodes=sort_nodes, namespace=namespace or "")
    own = namespace or own_namespace(kubeconfig, context)
    raise typer.Exit(run(wish, once=once, interval_s=interval_s, namespace=own, kubeconfig=kubeconfig, context=context))


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


Gpu = Annotated[str, typer.Argument(metavar="NODE/GPU", help="Such as hgx-h100-a/gpu-3, or hgx-h100-a/3.")]
Lines = Annotated[bool, typer.Option("--json", help="A line of JSON for everything that happens.")]


@device_app.command()
def drain(
    gpu: Gpu,
    mode: Annotated[
        Literal["wait", "evict"],
        typer.Option("--drain", help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait",
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait; it stays drained afterwards.")
    ] = 3600.0,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, in one line, for `device list`.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which gangs hold it.")] = False,
    as_json: Lines = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Give a GPU to no new claim, and wait until nothing has it. Exit code 0: it is empty; 1: failed; 3: still held."""
    from fairlead.cli.operate.device import run

    node, name = _gpu(gpu)
    raise typer.Exit(
        run(
            "look" if dry_run else "drain", node, name, drain=mode, timeout_s=timeout_s, reason=_reason(reason),
            as_json=as_json, kubeconfig=kubeconfig, context=context,
        )
    )  # fmt: skip


@device_app.command()
def undrain(gpu: Gpu, as_json: Lines = False, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Give a drained GPU to claims again."""
    from fairlead.cli.operate.device import run

    node, name = _gpu(gpu)
    raise typer.Exit(run("undrain", node, name, as_json=as_json, kubeconfig=kubeconfig, context=context))


@device_app.command("resume", hidden=True)
def resume_device(gpu: Gpu, as_json: Lines = False, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """As undrain."""
    undrain(gpu, as_json, kubeconfig, context)


@device_app.command("list")
def list_drained(kubeconfig: Kubeconfig = None, context: Context = None, output: Output = "table") -> None:
    """List the GPUs that are drained."""
    from fairlead.cli.operate.device import listing

    raise typer.Exit(listing(output=output, kubeconfig=kubeconfig, context=context))


def _gpu(text: str) -> tuple[str, str]:
    """Node and GPU, as gpu-3."""
    node, slash, gpu = text.rpartition("/")
    match = re.fullmatch(r"(?:gpu-)?(\d{1,3})", gpu)
    if not slash or not node or match is None:
        raise typer.BadParameter(
            f"{text!r} is no GPU of a node: write hgx-h100-a/gpu-3 (of a MIG device, the GPU that it is part of)",
            param_hint="NODE/GPU",
        )
    return node, f"gpu-{int(match[1])}"


def _reason(text: str) -> str:
    from fairlead.cli.operate.hold import checked_reason

    try:
        return checked_reason(text.strip())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--reason") from None
