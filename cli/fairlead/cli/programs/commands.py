"""`driver`, `webhook`, `controller`: the three programs; `drain`, which empties a cluster before they are uninstalled; `recreate`.

A parameter that bears the name of a field of the program's options sets it: a flag is declared here and nowhere else.
Each program's module is imported when it is called, so that the small commands do not pay for grpc, the client or NVML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.api import names
from fairlead.cli.options import (
    DynamicMig,
    Kubeconfig,
    LogFormat,
    LogLevel,
    ManagedDrivers,
    MetricsBind,
    OtlpEndpoint,
    TraceRatio,
    drivers,
)

PANEL = "Run a part of Fairlead"


def register(app: typer.Typer) -> None:
    for command in (driver, webhook, controller, drain, recreate):
        app.command(rich_help_panel=PANEL)(command)


def _size(text: str) -> str:
    from fairlead.kube.quantity import Quantity, QuantityError

    try:
        if int(Quantity.of(text)) >= 1:
            return text
    except QuantityError:
        pass
    raise typer.BadParameter(f"{text!r} is no size: write a quantity of bytes, such as 1Gi")


LEVELS_MAX = 8


def _levels(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split(",") if each.strip())
    except ValueError:
        found = (0.0,)
    if len(found) > LEVELS_MAX or not all(0 < each <= 100 for each in found):
        raise typer.BadParameter(
            f"{text[:80]!r} is no list of utilisations: write up to {LEVELS_MAX} percentages above 0 up to 100, such as 1,10,20",
            param_hint="--idle-levels",
        )
    return found


def driver(
    node_name: Annotated[str, typer.Option(help="Name of the Node this runs on.", envvar="NODE_NAME")],
    kubeconfig: Kubeconfig = None,
    backend: Annotated[
        str, typer.Option(help="nvml, or simulated:PROFILE (a profile's name or a YAML file).")
    ] = "nvml",
    plugins_dir: Annotated[Path, typer.Option(help="kubelet's directory of plugins.")] = Path(
        "/var/lib/kubelet/plugins"
    ),
    registry_dir: Annotated[Path, typer.Option(help="The directory kubelet watches for registrations.")] = Path(
        "/var/lib/kubelet/plugins_registry"
    ),
    cdi_dir: Annotated[Path, typer.Option(help="Where the container runtime reads CDI specs.")] = Path("/var/run/cdi"),
    driver_root: Annotated[
        Path, typer.Option(help="Root of the NVIDIA driver's files, as this process sees it.")
    ] = Path("/"),
    driver_root_host: Annotated[
        Path | None, typer.Option(help="The same root as the host sees it. Default: --driver-root.")
    ] = None,
    mps_dir: Annotated[
        Path | None,
        typer.Option(help="Pipes and shared memory of MPS, the same path on the host. Default: in --plugins-dir."),
    ] = None,
    mps_shm_size: Annotated[
        str,
        typer.Option(
            metavar="QUANTITY", help="What the containers of an MPS claim can write into /dev/shm.", callback=_size
        ),
    ] = "1Gi",
    device_metadata: Annotated[
        bool,
        typer.Option(
            "--device-metadata/--no-device-metadata", help="Give containers a file with their devices' attributes."
        ),
    ] = True,
    pod_uid: Annotated[
        str | None,
        typer.Option(help="This pod's UID: sockets get names of their own for rolling updates.", envvar="POD_UID"),
    ] = None,
    dynamic_mig: DynamicMig = False,
    shared_gpus: Annotated[
        bool,
        typer.Option("--shared-gpus", help="Let a whole GPU be in several claims, each with a part of its memory."),
    ] = False,
    shared_mig: Annotated[
        bool,
        typer.Option("--shared-mig", help="The same of MIG devices that are there, not of those made on demand."),
    ] = False,
    shared_replicas: Annotated[
        int,
        typer.Option(
            min=1, max=128, help="Of a shared device a claim that does not say how much gets one of so many shares."
        ),
    ] = 1,
    dcgm_metrics: Annotated[
        bool, typer.Option("--dcgm-metrics", help="Serve GPU metrics under DCGM's names, too.")
    ] = False,
    node_labels_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write node labels as GPU feature discovery's into this directory of Node Feature Discovery's features.",
        ),
    ] = None,
    mig_strategy: Annotated[
        Literal["none", "single", "mixed"],
        typer.Option(help="How these labels, and the attribute resourceName, show MIG devices, as the device plugin."),
    ] = "none",
    mig_config_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="MIG layouts, of which the node's label nvidia.com/mig.config chooses one, as NVIDIA's MIG manager.",
        ),
    ] = None,
    device_usage: Annotated[
        bool,
        typer.Option(
            "--device-usage/--no-device-usage", help="Write into claims' statuses whether their devices are busy."
        ),
    ] = True,
    idle_below: Annotated[
        float, typer.Option(min=0, max=100, metavar="PERCENT", help="A device of less utilisation than this is idle,")
    ] = 5.0,
    idle_window_s: Annotated[
        float, typer.Option("--idle-window", min=30, metavar="SECONDS", help="when it was so for all of this time.")
    ] = 300.0,
    levels: Annotated[
        str,
        typer.Option(
            "--idle-levels",
            metavar="PERCENT,…",
            help="Of these levels, too, a claim's status says since when a device is below it (for `idle.below` of queues).",
        ),
    ] = "1,10,20",
    metrics_bind: MetricsBind = None,
    otlp_endpoint: OtlpEndpoint = None,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the kubelet plugin of one node: publish its GPUs, prepare claims."""
    from fairlead.cli.serve import options_of, serve
    from fairlead.driver.app import DriverOptions, run

    idle_levels = _levels(levels)
    serve(run, options_of(DriverOptions, locals()), log_format=log_format, log_level=log_level)


def webhook(
    kubeconfig: Kubeconfig = None,
    bind: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to listen (TLS); /healthz and /readyz are answered here, too."),
    ] = "0.0.0.0:9443",
    url: Annotated[
        str | None, typer.Option(help="Register under this URL, as https://127.0.0.1:9443. Default: by Service.")
    ] = None,
    service: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Register as this Service.")
    ] = f"{names.NAMESPACE}/fairlead-webhook",
    managed_driver: ManagedDrivers = None,
    certificate_from: Annotated[
        Path | None,
        typer.Option(
            help="Serve tls.crt and tls.key from this directory, read again when they change (a Secret of cert-manager). "
            "Default: a certificate of its own.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    metrics_bind: MetricsBind = None,
    otlp_endpoint: OtlpEndpoint = None,
    trace_ratio: TraceRatio = 1.0,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the admission webhook: gate managed pods, settle gangs, turn legacy requests into claims."""
    import uvloop

    from fairlead.cli.serve import options_of, serve
    from fairlead.webhook.app import WebhookOptions, run

    managed_drivers = drivers(managed_driver)
    options = options_of(WebhookOptions, locals())
    serve(run, options, log_format=log_format, log_level=log_level, loop=uvloop.new_event_loop)


def controller(
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the leader lease.")] = names.NAMESPACE,
    identity: Annotated[
        str | None, typer.Option(help="Name in the lease. Default: host name and a random part.")
    ] = None,
    gang_timeout_s: Annotated[
        float,
        typer.Option("--gang-timeout", min=1, help="Seconds a released gang has to be bound, before it goes back."),
    ] = 120.0,
    replace_timeout_s: Annotated[
        float,
        typer.Option(
            "--replace-timeout",
            min=1,
            help="Seconds a running gang may be short of a member that is being replaced, before all of it starts again.",
        ),
    ] = 300.0,
    lease_s: Annotated[
        float,
        typer.Option("--lease-duration", min=3, help="Seconds until another replica takes a silent leader's place."),
    ] = 15.0,
    usage_half_life: Annotated[
        str,
        typer.Option("--usage-half-life", help="After this long, what a queue used counts half, such as 7d or 12h."),
    ] = "7d",
    usage_weight: Annotated[
        float,
        typer.Option("--usage-weight", min=0, help="How strongly past use corrects queues' weights; 0: not at all."),
    ] = 1.0,
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast/--no-forecast", help="Forecast the starts of waiting gangs, in a process beside the decisions."
        ),
    ] = True,
    nominate_nodes: Annotated[
        bool,
        typer.Option(
            "--nominate-nodes",
            help="Where devices are held for a waiting gang, have kube-scheduler keep cpu and memory for its pods, too (nominatedNodeName).",
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Record every decision there while leading, for `fairlead replay`.", file_okay=False
        ),
    ] = None,
    record_max_size: Annotated[
        str,
        typer.Option(metavar="QUANTITY", help="The oldest segments are deleted beyond this.", callback=_size),
    ] = "2Gi",
    record_max_age: Annotated[
        str, typer.Option(help="Segments older than this are deleted, such as 14d or 12h.")
    ] = "14d",
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="Account there for the time of every device while leading: a directory, or postgresql://…, for `fairlead cost`.",
            envvar="FAIRLEAD_LEDGER",
        ),
    ] = None,
    ledger_keep: Annotated[
        str, typer.Option(help="What ended longer ago is removed from the ledger, such as 400d.")
    ] = "400d",
    ledger_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Keep this label of pods, or of their namespace, with each claim, for `fairlead cost --by label=NAME`; may be repeated.",
        ),
    ] = None,
    opencost: Annotated[
        bool,
        typer.Option(
            help="Show in the metrics which container holds how many GPUs (container_gpu_allocation), by which OpenCost charges them."
        ),
    ] = False,
    managed_driver: ManagedDrivers = None,
    metrics_bind: MetricsBind = None,
    otlp_endpoint: OtlpEndpoint = None,
    trace_ratio: TraceRatio = 1.0,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the controller: decide which gangs get which GPUs, and give them."""
    import uvloop

    from fairlead.api.durations import duration_s
    from fairlead.cli.serve import options_of, serve
    from fairlead.controller.app import ControllerOptions, run
    from fairlead.history.ledger.store.errors import LedgerError
    from fairlead.history.ledger.store.place import place_of
    from fairlead.kube.quantity import Quantity

    managed_drivers, record_bytes_max = drivers(managed_driver), int(Quantity.of(record_max_size))
    try:
        usage_half_life_s = duration_s(usage_half_life)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--usage-half-life") from None
    try:
        record_age_max_s = duration_s(record_max_age)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--record-max-age") from None
    try:
        ledger_keep_s = duration_s(ledger_keep)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ledger-keep") from None
    ledger_labels = tuple(dict.fromkeys(ledger_label or ()))
    if ledger is not None:
        try:
            place_of(ledger)
        except LedgerError as error:
            raise typer.BadParameter(str(error), param_hint="--ledger") from None
    options = options_of(ControllerOptions, locals())
    serve(run, options, log_format=log_format, log_level=log_level, loop=uvloop.new_event_loop)


def drain(
    node: Annotated[str, typer.Argument(hidden=True)] = "",
    kubeconfig: Kubeconfig = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Stop the controller, then evict the pods that hold devices.")
    ] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for evicted pods.")] = 300.0,
    managed_driver: ManagedDrivers = None,
) -> None:
    """Before an uninstall: say which claims still hold devices, or end them. Exit code 1 while any does."""
    from fairlead.cli.programs.drain import drain as run

    if node:
        message = f"{node}: this empties the whole cluster before an uninstall; for one node: kubectl drain {node}"
        raise typer.BadParameter(message, param_hint="drain")
    raise typer.Exit(run(kubeconfig, drivers=drivers(managed_driver), evict=evict, timeout_s=timeout_s))


def recreate(
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only there. Default: everywhere.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the pods.")] = False,
) -> None:
    """After a downgrade or an opt-out, before an uninstall: delete waiting pods with named claims; their owners recreate them."""
    from fairlead.cli.programs.recreate import recreate as run

    raise typer.Exit(run(kubeconfig, namespace=namespace, dry_run=dry_run))
