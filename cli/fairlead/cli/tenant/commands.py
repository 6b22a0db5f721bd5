"""Flags of `fairlead tenant create | list | show`. Modules are imported when called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlead.cli.printer import say
from fairlead.cli.views.commands import Context, Kubeconfig, Output

PANEL = "Set up a team"
tenant_app = typer.Typer(
    help="A team's baseline: namespaces, queue, quotas, Pod Security, network, roles. To remove one: see `create`.",
    no_args_is_help=True,
)
Texts = list[str] | None


@tenant_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The tenant's name.", show_default=False)] = "",
    namespace: Annotated[
        Texts, typer.Option("--namespace", "-n", help="A namespace of it; may be repeated. Default: NAME.")
    ] = None,
    namespace_label: Annotated[
        Texts, typer.Option(metavar="KEY=VALUE", help="A further label of its namespaces; may be repeated.")
    ] = None,
    queue: Annotated[
        Texts,
        typer.Option(
            metavar="QUEUE[=NAMESPACE,…]", help="A queue of it, and the namespaces bound to it. Default: NAME, for all."
        ),
    ] = None,
    existing_queue: Annotated[
        bool, typer.Option("--existing-queue", help="The queue exists: label namespaces for it, and leave it as it is.")
    ] = False,
    parent: Annotated[str | None, typer.Option(metavar="QUEUE", help="The queue above.")] = None,
    deserved: Annotated[
        Texts, typer.Option(metavar="[QUEUE/]FLAVOR=N", help="Guaranteed to its queue; may be repeated.")
    ] = None,
    limit: Annotated[
        Texts, typer.Option(metavar="[QUEUE/]FLAVOR=N", help="The most that its queue may use; may be repeated.")
    ] = None,
    admins: Annotated[
        Texts,
        typer.Option(
            metavar="SUBJECT",
            help="Who manages jobs, claims and templates: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME; may be repeated.",
        ),
    ] = None,
    members: Annotated[Texts, typer.Option(metavar="SUBJECT", help="Who submits jobs, and reads.")] = None,
    gpus: Annotated[
        Texts,
        typer.Option(metavar="CLASS=N", help="ResourceQuota: devices of a DeviceClass in claims; may be repeated."),
    ] = None,
    claims: Annotated[int | None, typer.Option(metavar="N", help="ResourceQuota: ResourceClaims.")] = None,
    pods: Annotated[int | None, typer.Option(metavar="N", help="ResourceQuota: pods that have not ended.")] = None,
    cpu: Annotated[str | None, typer.Option(metavar="QUANTITY", help="ResourceQuota: requested cpu.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="QUANTITY", help="ResourceQuota: requested memory.")] = None,
    egress: Annotated[
        Texts,
        typer.Option(
            metavar="CIDR|namespace:NAME[=PORT,…[/UDP]]", help="Where its pods may connect to; may be repeated."
        ),
    ] = None,
    ingress: Annotated[
        Texts,
        typer.Option(
            metavar="CIDR|namespace:NAME[=PORT,…[/UDP]]", help="From where its pods may be reached; may be repeated."
        ),
    ] = None,
    network_policies: Annotated[
        bool,
        typer.Option(
            "--network-policies/--no-network-policies", help="Refuse other traffic than within the tenant and to DNS."
        ),
    ] = True,
    pod_security: Annotated[
        Literal["restricted", "baseline", "privileged"], typer.Option(help="Pod Security level that is enforced.")
    ] = "restricted",
    priority_classes: Annotated[
        Literal["shared", "per-tenant", "none"],
        typer.Option(help="fairlead-low, -normal and -high for all tenants, NAME-low and so on, or none."),
    ] = "shared",
    file: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            help="A description as the chart's value `tenants` lists them (YAML), instead of the flags above.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take over what exists and is no tenant's, and fields that others wrote."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print all objects; ask no cluster.")] = False,
    output: Annotated[
        Literal["text", "yaml", "json"],
        typer.Option("--output", "-o", help="Of --dry-run: yaml (default) or json. Else: lines, or what was done."),
    ] = "text",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Create a tenant's objects, or bring them up to date, with your own rights; what exists and is right stays.

    Quotas are of each namespace. What the description no longer has is not deleted. To remove a tenant with all that runs in it:
    kubectl delete queues,namespaces -l fairlead.dev/tenant=NAME

    Exit code 0: all is as described. 1: something was refused; run it again to go on. 2: the description is wrong.
    """
    from fairlead.api.base import ManifestError
    from fairlead.api.tenant import Tenant
    from fairlead.cli.tenant import create as work
    from fairlead.cli.tenant.flags import FlagError, counts, description, named, pairs, peers, queues

    try:
        given: dict[str, Any] = description(
            name=name or None,
            namespaces=namespace,
            namespaceLabels=pairs("--namespace-label", namespace_label or (), "team=ml"),
            queues=queues(
                queue or (),
                tenant=name,
                existing=existing_queue,
                parent=parent,
                deserved=deserved or (),
                limit=limit or (),
            ),
            admins=admins,
            members=members,
            quota={
                "gpus": counts("--gpus", gpus or (), "gpu.fairlead.dev=8") or None,
                "claims": claims,
                "pods": pods,
                "cpu": cpu,
                "memory": memory,
            },
            network={
                "isolate": None if network_policies else False,
                "egress": peers("--egress", egress or ()) or None,
                "ingress": peers("--ingress", ingress or ()) or None,
            },
            podSecurity=None if pod_security == "restricted" else pod_security,
            priorityClasses={"shared": None, "per-tenant": "PerTenant", "none": "None"}[priority_classes],
        )
        raw = work.read(file, given) if file is not None else given
    except FlagError as error:
        raise typer.BadParameter(str(error), param_hint=error.flag) from None
    try:
        tenant = Tenant.read(raw)
    except ManifestError as error:
        faults = [f"{file}: {fault}" for fault in error.faults] if file is not None else named(error)
        say("\n".join(faults), file=sys.stderr)
        raise typer.Exit(2) from None
    if dry_run:
        work.show(tenant, "json" if output == "json" else "yaml")
        return
    raise typer.Exit(work.create(tenant, adopt=adopt, kubeconfig=kubeconfig, context=context, output=output))


@tenant_app.command("list")
def list_tenants(kubeconfig: Kubeconfig = None, context: Context = None, output: Output = "table") -> None:
    """List the cluster's tenants: namespaces, queues, Pod Security, and what their quotas of devices have left."""
    from fairlead.cli.tenant.listing import show_all

    raise typer.Exit(show_all(kubeconfig=kubeconfig, context=context, output=output))


@tenant_app.command()
def show(
    name: Annotated[str, typer.Argument(help="The tenant's name.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
) -> None:
    """Show every object of a tenant that you may list, and how it is removed."""
    from fairlead.cli.tenant.listing import show_one

    raise typer.Exit(show_one(name, kubeconfig=kubeconfig, context=context, output=output))
