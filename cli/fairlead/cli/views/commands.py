"""Flags of the subcommands that ask a cluster: `queues`, `gangs`, `explain`, `ui`; also as `kubectl fairlead …`.

The flags that they share are declared once. Each module is imported when it is called.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import LogFormat, LogLevel, ManagedDrivers, MetricsBind
from fairlead.cli.options import drivers as drivers_of
from fairlead.cli.printer import say

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Cluster to ask. Default: $KUBECONFIG, ~/.kube/config.", exists=True, dir_okay=False),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: its current one.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Default: the context's namespace.")]
Snapshot = Annotated[
    Path | None,
    typer.Option(help="Read this file (`fairlead snapshot > FILE`) instead of a cluster.", exists=True, dir_okay=False),
]
Ledger = Annotated[
    str,
    typer.Option(
        metavar="DIR|URL",
        envvar="FAIRLEAD_LEDGER",
        help="The controller's ledger, for what happened and what it cost. Default: $FAIRLEAD_LEDGER.",
    ),
]
Output = Annotated[
    Literal["table", "json", "yaml"],
    typer.Option("--output", "-o", help="A table for people; json or yaml for programs."),
]

NO_PAGES = "fairlead ui: Jinja2 is not installed here; install Fairlead with pip and its extra: fairlead[ui]"


def register(app: typer.Typer) -> None:
    for command in (queues, gangs, explain, ui):
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
    from fairlead.cli.views.reading import own_namespace

    chosen = namespace or own_namespace(kubeconfig, context)
    from fairlead.cli.views.explain import show

    raise typer.Exit(show(target, namespace=chosen, kubeconfig=kubeconfig, context=context, output=output))


def ui(
    port: Annotated[int, typer.Option(help="Port on loopback; 0: any free one.", min=0, max=65535)] = 8470,
    snapshot: Snapshot = None,
    ledger: Ledger = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    login: Annotated[
        Literal["token", "proxy"] | None,
        typer.Option(
            help="Serve others, by TLS, each with what they may see: who logs in with a bearer token, or through a proxy that logs "
            "users in. Default: loopback only, without a login."
        ),
    ] = None,
    bind: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="With --login: where to listen; /healthz and /readyz are answered here, too."
        ),
    ] = "0.0.0.0:8443",
    url: Annotated[
        list[str] | None,
        typer.Option(
            help="Where browsers reach it, as https://gpus.example.com; may be repeated. Default: any name is answered."
        ),
    ] = None,
    certificate_from: Annotated[
        Path | None,
        typer.Option(
            help="Serve tls.crt and tls.key from this directory, read again when they change. Default: a certificate of its own, "
            "which no browser knows.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    audience: Annotated[
        list[str] | None,
        typer.Option(
            help="--login token: tokens must be made for this audience; may be repeated. Default: fairlead-ui."
        ),
    ] = None,
    cluster_tokens: Annotated[
        bool,
        typer.Option(
            "--cluster-tokens",
            help="--login token: accept tokens for the apiserver itself, too; such a token can do all that its owner may.",
        ),
    ] = False,
    session_idle: Annotated[str, typer.Option(help="A session ends when it was not used for this long.")] = "1h",
    session_max: Annotated[str, typer.Option(help="A session ends after this long.")] = "12h",
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="--login proxy: the authority (PEM) of the proxy's client certificate.", exists=True, dir_okay=False
        ),
    ] = None,
    proxy_name: Annotated[
        list[str] | None,
        typer.Option(help="--login proxy: common or DNS name in that certificate; may be repeated."),
    ] = None,
    proxy_secret_file: Annotated[
        Path | None,
        typer.Option(
            help="--login proxy: a file with the secret that the proxy sends as X-Fairlead-Proxy-Secret.",
            dir_okay=False,
        ),
    ] = None,
    user_prefix: Annotated[
        str, typer.Option(help="--login proxy: stands before each user's name, such as oidc:.")
    ] = "",
    group_prefix: Annotated[str, typer.Option(help="--login proxy: stands before each group's name.")] = "",
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="With --login: answer questions of what if.")
    ] = True,
    managed_driver: ManagedDrivers = None,
    metrics_bind: MetricsBind = None,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Serve pages about the cluster: on loopback, with your own rights, or for all who log in. Devices, queues, gangs."""
    try:
        from fairlead.cli.views.ui import show
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        say(NO_PAGES, file=sys.stderr)
        raise typer.Exit(1) from None
    if login is None:
        raise typer.Exit(
            show(
                snapshot=snapshot,
                kubeconfig=kubeconfig,
                context=context,
                port=port,
                ledger=ledger,
                drivers=drivers_of(managed_driver),
            )
        )
    import uvloop

    from fairlead.cli.serve import options_of, serve
    from fairlead.ui.app import AUDIENCE, UiOptions, run

    for flag, value in (("--snapshot", snapshot), ("--context", context)):
        if value is not None:
            raise typer.BadParameter("is for pages on loopback: leave out --login", param_hint=flag)
    session_idle_s, session_max_s = _seconds(session_idle, "--session-idle"), _seconds(session_max, "--session-max")
    urls, audiences, proxy_names = tuple(url or ()), tuple(audience or (AUDIENCE,)), tuple(proxy_name or ())
    drivers = drivers_of(managed_driver)
    serve(run, options_of(UiOptions, locals()), log_format=log_format, log_level=log_level, loop=uvloop.new_event_loop)


def _seconds(text: str, flag: str) -> float:
    from fairlead.api.durations import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None
