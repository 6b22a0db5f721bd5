"""The `fairlead` command and its subcommands.

Each subcommand's module is imported when it is called, so that `fairlead --help` and the small commands
do not pay for grpc, the Kubernetes client or NVML.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from fairlead import __version__
from fairlead.api import names
from fairlead.cli import cluster_commands

app = typer.Typer(
    name="fairlead",
    help="GPUs of a shared Kubernetes cluster, given to whole jobs, fairly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _ManifestsByDefault(TyperGroup):
    """`fairlead check FILE…` is `fairlead check manifests FILE…`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in self.commands or args[0] in {"-h", "--help"}
        return super().parse_args(ctx, args if named else ["manifests", *args])


check_app = typer.Typer(
    cls=_ManifestsByDefault,
    help="Say what a cluster would say, without one: check FILE…, or one of the commands.",
    no_args_is_help=True,
)
app.add_typer(check_app, name="check")
cluster_commands.register(app)

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        help="Cluster to talk to. Default: $KUBECONFIG, the pod's service account, ~/.kube/config.",
        exists=True,
        dir_okay=False,
    ),
]
MetricsBind = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics here. Default: nowhere.")
]
ManagedDrivers = Annotated[
    list[str] | None,
    typer.Option("--managed-driver", help=f"DRA driver whose devices Fairlead allocates. Default: {names.DRIVER}."),
]
DynamicMig = Annotated[
    bool,
    typer.Option("--dynamic-mig", help="Offer every MIG placement of GPUs that are not cut, and cut them on demand."),
]
LogFormat = Annotated[Literal["json", "text"], typer.Option("--log-format", help="Form of the log lines.")]
LogLevel = Annotated[
    Literal["ERROR", "WARNING", "INFO", "DEBUG"], typer.Option("--log-level", help="Least level shown.")
]


def _version(value: bool) -> None:
    if value:
        print(f"fairlead {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command()
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
    dcgm_metrics: Annotated[
        bool, typer.Option("--dcgm-metrics", help="Serve GPU metrics under DCGM's names, too.")
    ] = False,
    metrics_bind: MetricsBind = None,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the kubelet plugin of one node: publish its GPUs, prepare claims."""
    from fairlead.cli import programs
    from fairlead.driver.app import DriverOptions, run

    options = DriverOptions(
        node_name=node_name,
        kubeconfig=kubeconfig,
        backend=backend,
        plugins_dir=plugins_dir,
        registry_dir=registry_dir,
        cdi_dir=cdi_dir,
        driver_root=driver_root,
        driver_root_host=driver_root_host,
        mps_dir=mps_dir,
        device_metadata=device_metadata,
        pod_uid=pod_uid,
        dynamic_mig=dynamic_mig,
        shared_gpus=shared_gpus,
        dcgm_metrics=dcgm_metrics,
        metrics_bind=metrics_bind,
    )
    programs.serve(lambda: run(options), log_format=log_format, log_level=log_level)


@app.command()
def devices(
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")] = "nvml",
    dynamic_mig: DynamicMig = False,
    output: Annotated[str, typer.Option("--output", "-o", help="table, yaml or json.")] = "table",
) -> None:
    """Show the devices that a driver on this node would publish."""
    from fairlead.cli.devices import devices as show

    if output not in {"table", "yaml", "json"}:
        raise typer.BadParameter(f"{output!r}: write table, yaml or json", param_hint="--output")
    raise typer.Exit(show(backend, dynamic_mig=dynamic_mig, output=output))


@app.command()
def record(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: print it.")] = None,
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")] = "nvml",
    uuids: Annotated[bool, typer.Option("--uuids", help="Keep the GPUs' UUIDs.")] = False,
) -> None:
    """Write this node as a profile, to simulate it elsewhere."""
    from fairlead.cli.devices import record as write

    raise typer.Exit(write(backend, output=output, uuids=uuids))


@app.command()
def fault(
    device: Annotated[str, typer.Argument(help="A whole GPU, such as gpu-3; with --mend also `all`.")],
    plugins_dir: Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")],
    xid: Annotated[int | None, typer.Option(help="Report this Xid.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Let it fall off the bus.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="Make it well again.")] = False,
) -> None:
    """Break a simulated GPU, or make it well again."""
    from fairlead.cli.devices import fault as inject

    raise typer.Exit(inject(device, plugins_dir=plugins_dir, xid=xid, lost=lost, mend=mend))


@app.command()
def webhook(
    kubeconfig: Kubeconfig = None,
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen (TLS).")] = "0.0.0.0:9443",
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
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the admission webhook: gate managed pods, settle gangs, turn legacy requests into claims."""
    import uvloop

    from fairlead.cli import programs
    from fairlead.webhook.app import WebhookOptions, run

    options = WebhookOptions(
        kubeconfig=kubeconfig,
        bind=bind,
        url=url,
        service=service,
        managed_drivers=tuple(managed_driver or (names.DRIVER,)),
        certificate_from=certificate_from,
        own_process=True,
        metrics_bind=metrics_bind,
    )
    programs.serve(lambda: run(options), log_format=log_format, log_level=log_level, loop=uvloop.new_event_loop)


@app.command()
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
    managed_driver: ManagedDrivers = None,
    metrics_bind: MetricsBind = None,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Run the controller: decide which gangs get which GPUs, and give them."""
    from fairlead.api.gang import duration_s
    from fairlead.cli import programs
    from fairlead.controller.app import ControllerOptions, run

    try:
        half_life_s = duration_s(usage_half_life)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--usage-half-life") from None
    options = ControllerOptions(
        kubeconfig=kubeconfig,
        namespace=namespace,
        identity=identity,
        gang_timeout_s=gang_timeout_s,
        lease_s=lease_s,
        usage_half_life_s=half_life_s,
        usage_weight=usage_weight,
        managed_drivers=tuple(managed_driver or (names.DRIVER,)),
        metrics_bind=metrics_bind,
    )
    programs.serve(lambda: run(options), log_format=log_format, log_level=log_level)


@app.command()
def drain(
    kubeconfig: Kubeconfig = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Stop the controller, then evict the pods that hold devices.")
    ] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for evicted pods.")] = 300.0,
    managed_driver: ManagedDrivers = None,
) -> None:
    """Before an uninstall: say which claims still hold devices, or end them. Exit code 1 while any does."""
    from fairlead.cli.drain import drain as run

    drivers = tuple(managed_driver or (names.DRIVER,))
    raise typer.Exit(run(kubeconfig, drivers=drivers, evict=evict, timeout_s=timeout_s))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running and print its KUBECONFIG.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live view.")] = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Keep sockets, specs, logs and the kubeconfig here. Default: a new directory.")
    ] = None,
) -> None:
    """Start a cluster in this process, run the main job on it, and check what happened."""
    from fairlead.cli.demo.run import run_demo

    raise typer.Exit(run_demo(keep=keep, plain=plain or not sys.stdout.isatty(), workdir=workdir))


@app.command()
def simulate(
    nodes: Annotated[Path, typer.Option(help="CSV of the nodes: sn, cpu_milli, memory_mib, gpu, model.")],
    pods: Annotated[
        Path, typer.Option(help="CSV of the pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
    ],
    arrivals: Annotated[
        Path | None,
        typer.Option(help="CSV of recorded arrivals, a column per seed. Default: draw them by the protocol."),
    ] = None,
    seed: Annotated[
        list[str] | None, typer.Option(metavar="N|N-M", help="Run to replay; may be repeated. Default: 42.")
    ] = None,
    policy: Annotated[
        Literal["fairlead", "best-fit", "fgd", "random"], typer.Option(help="Who places: ours, or one to compare with.")
    ] = "fairlead",
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures there.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plot there, as SVG.")] = None,
) -> None:
    """Replay a placement trace through the controller's placement, beside published policies."""
    from fairlead.cli.simulate.command import simulate as run
    from fairlead.cli.simulate.protocol import parse_seeds

    try:
        seeds = parse_seeds(seed or ["42"])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--seed") from None
    raise typer.Exit(run(nodes, pods, arrivals, seeds=seeds, policy=policy, json_file=json_file, plot=plot))


@app.command()
def crds(
    output: Annotated[
        Path | None,
        typer.Option(help="Write one file per kind into this directory. Default: print all.", file_okay=False),
    ] = None,
) -> None:
    """Generate the CustomResourceDefinitions of Queue, Flavor, TenancyPolicy and Gang."""
    from fairlead.api import crds as generated

    files = generated.render()
    if output is None:
        print("---\n".join(files[name] for name in sorted(files)), end="")
        return
    output.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(files.items()):
        (output / name).write_text(text)
        print(output / name)


@check_app.command("manifests")
def check_manifests(
    files: Annotated[
        list[Path], typer.Argument(help="Manifests: files, directories, or - for standard input.", metavar="FILE…")
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option("--policies", help="Manifests that the verdicts depend on, but that are not judged.", exists=True),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Take policies, classes, templates and devices from this cluster, too.", exists=True),
    ] = None,
    user: Annotated[str, typer.Option("--as", help="User that applies them, for exemptions.")] = "fairlead-check",
    groups: Annotated[list[str] | None, typer.Option("--as-group", help="Group of that user.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Form of the answer.")] = "text",
) -> None:
    """Say what the webhook would say of manifests, and what the pods of their jobs would get."""
    from fairlead.cli.check_manifests import check

    status = check(files, policies=policies or (), kubeconfig=kubeconfig, user=user, groups=groups or (), output=output)
    raise typer.Exit(status)


@check_app.command("cel")
def check_cel(
    expression: Annotated[str, typer.Argument(help="A DRA device selector.")],
    device: Annotated[
        Path | None,
        typer.Option(help="A ResourceSlice (YAML or JSON): the verdict for each of its devices.", exists=True),
    ] = None,
) -> None:
    """Compile a device selector as the apiserver would; show its type, cost, and what it reads."""
    from fairlead.cli.check_cel import check

    raise typer.Exit(check(expression, device=device))


def main() -> None:
    """Also what `kubectl fairlead` calls: kubectl runs the program kubectl-fairlead."""
    called = Path(sys.argv[0]).name
    app(prog_name="kubectl fairlead" if called.startswith("kubectl-") else "fairlead")
