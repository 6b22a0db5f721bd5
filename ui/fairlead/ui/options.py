"""The options of the pages, with the flags of `fairlead ui` that hold for viewers who log in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.flags import DRIVERS, DURATION, KUBECONFIG, ManagedDrivers, MetricsBind, SharedClaimDrivers
from fairlead.ui.access.sessions import ABSOLUTE_S, IDLE_S

AUDIENCE: Final = "fairlead-ui"


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """What `fairlead ui` can be told; without `login` only ledger, kubeconfig and the drivers count."""

    login: Annotated[
        Literal["token", "proxy"] | None,
        typer.Option(
            help="Serve others, by TLS, each with what they may see: who logs in with a bearer token, or through a proxy that logs "
            "users in. Default: loopback only, without a login."
        ),
    ] = None
    bind: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="With --login: where to listen; /healthz and /readyz are answered here, too."
        ),
    ] = "0.0.0.0:8443"
    urls: Annotated[
        tuple[str, ...],
        typer.Option(
            "--url",
            help="Where browsers reach it, as https://gpus.example.com; may be repeated. Default: any name is answered.",
        ),
    ] = ()
    certificate_from: Annotated[
        Path | None,
        typer.Option(
            help="Serve tls.crt and tls.key from this directory, read again when they change. Default: a certificate of its own, "
            "which no browser trusts.",
            exists=True,
            file_okay=False,
        ),
    ] = None
    audiences: Annotated[
        tuple[str, ...],
        typer.Option("--audience", help="--login token: tokens must be made for this audience; may be repeated."),
    ] = (AUDIENCE,)
    cluster_tokens: Annotated[
        bool,
        typer.Option(
            "--cluster-tokens",
            help="--login token: accept tokens for the apiserver itself, too; such a token can do all that its owner may.",
        ),
    ] = False
    session_idle_s: Annotated[
        float,
        DURATION,
        typer.Option("--session-idle", help="A session ends when it was not used for this long."),
    ] = IDLE_S
    session_max_s: Annotated[float, DURATION, typer.Option("--session-max", help="A session ends after this long.")] = (
        ABSOLUTE_S
    )
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="--login proxy: the authority (PEM) of the proxy's client certificate.", exists=True, dir_okay=False
        ),
    ] = None
    proxy_names: Annotated[
        tuple[str, ...],
        typer.Option("--proxy-name", help="--login proxy: common or DNS name in that certificate; may be repeated."),
    ] = ()
    proxy_secret_file: Annotated[
        Path | None,
        typer.Option(
            help="--login proxy: a file with the secret that the proxy sends as X-Fairlead-Proxy-Secret.",
            dir_okay=False,
        ),
    ] = None
    user_prefix: Annotated[str, typer.Option(help="--login proxy: stands before each user's name, such as oidc:.")] = ""
    group_prefix: Annotated[str, typer.Option(help="--login proxy: stands before each group's name.")] = ""
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="With --login: answer questions of what if.")
    ] = True
    ledger: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            envvar="FAIRLEAD_LEDGER",
            help="The controller's ledger, for what happened and what it cost. Default: $FAIRLEAD_LEDGER.",
        ),
    ] = ""
    kubeconfig: Annotated[Kubeconfig, KUBECONFIG] = None
    managed_drivers: ManagedDrivers = DRIVERS
    shared_claim_drivers: SharedClaimDrivers = ()
    metrics_bind: MetricsBind = None
