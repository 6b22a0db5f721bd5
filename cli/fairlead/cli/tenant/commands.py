"""`fairlead tenant create | list | show`. What they do is imported when they run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlead.cli.options import OfCluster, Shown
from fairlead.cli.printer import say


@dataclass(frozen=True, kw_only=True)
class Create(OfCluster):
    """Create a tenant's objects, or bring them up to date, with your own rights; what exists and is right stays.

    Quotas are of each namespace. What the description no longer has is not deleted. To remove a tenant with all that runs in it:
    kubectl delete queues,namespaces -l fairlead.dev/tenant=NAME

    Exit code 0: all is as described. 1: something was refused; run it again to go on. 2: the description is wrong.
    """

    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The tenant's name.", show_default=False)] = ""
    namespace: Annotated[
        tuple[str, ...], typer.Option("--namespace", "-n", help="A namespace of it; may be repeated. Default: NAME.")
    ] = ()
    namespace_label: Annotated[
        tuple[str, ...], typer.Option(metavar="KEY=VALUE", help="A further label of its namespaces; may be repeated.")
    ] = ()
    queue: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="QUEUE[=NAMESPACE,…]", help="A queue of it, and the namespaces bound to it. Default: NAME, for all."
        ),
    ] = ()
    existing_queue: Annotated[
        bool, typer.Option("--existing-queue", help="The queue exists: label namespaces for it, and leave it as it is.")
    ] = False
    parent: Annotated[str | None, typer.Option(metavar="QUEUE", help="The queue above.")] = None
    deserved: Annotated[
        tuple[str, ...], typer.Option(metavar="[QUEUE/]FLAVOR=N", help="Guaranteed to its queue; may be repeated.")
    ] = ()
    limit: Annotated[
        tuple[str, ...],
        typer.Option(metavar="[QUEUE/]FLAVOR=N", help="The most that its queue may use; may be repeated."),
    ] = ()
    admins: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="SUBJECT",
            help="Who manages jobs, claims and templates: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME; may be repeated.",
        ),
    ] = ()
    members: Annotated[tuple[str, ...], typer.Option(metavar="SUBJECT", help="Who submits jobs, and reads.")] = ()
    gpus: Annotated[
        tuple[str, ...],
        typer.Option(metavar="CLASS=N", help="ResourceQuota: devices of a DeviceClass in claims; may be repeated."),
    ] = ()
    claims: Annotated[int | None, typer.Option(metavar="N", help="ResourceQuota: ResourceClaims.")] = None
    pods: Annotated[int | None, typer.Option(metavar="N", help="ResourceQuota: pods that have not ended.")] = None
    cpu: Annotated[str | None, typer.Option(metavar="QUANTITY", help="ResourceQuota: requested cpu.")] = None
    memory: Annotated[str | None, typer.Option(metavar="QUANTITY", help="ResourceQuota: requested memory.")] = None
    egress: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="CIDR|namespace:NAME[=PORT,…[/UDP]]", help="Where its pods may connect to; may be repeated."
        ),
    ] = ()
    ingress: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="CIDR|namespace:NAME[=PORT,…[/UDP]]", help="From where its pods may be reached; may be repeated."
        ),
    ] = ()
    network_policies: Annotated[
        bool,
        typer.Option(
            "--network-policies/--no-network-policies", help="Refuse other traffic than within the tenant and to DNS."
        ),
    ] = True
    pod_security: Annotated[
        Literal["restricted", "baseline", "privileged"], typer.Option(help="Pod Security level that is enforced.")
    ] = "restricted"
    priority_classes: Annotated[
        Literal["shared", "per-tenant", "none"],
        typer.Option(help="fairlead-low, -normal and -high for all tenants, NAME-low and so on, or none."),
    ] = "shared"
    file: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            help="A description as the chart's value `tenants` lists them (YAML), instead of the flags above.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take over what exists and is no tenant's, and fields that others wrote."),
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print all objects; ask no cluster.")] = False
    output: Annotated[
        Literal["text", "yaml", "json"],
        typer.Option("--output", "-o", help="Of --dry-run: yaml (default) or json. Else: lines, or what was done."),
    ] = "text"

    def run(self) -> int:
        from fairlead.api.base import ManifestError
        from fairlead.api.tenant import Tenant
        from fairlead.cli.tenant import create as work
        from fairlead.cli.tenant.flags import FlagError, counts, description, named, pairs, peers, queues

        try:
            given: dict[str, Any] = description(
                name=self.name or None,
                namespaces=list(self.namespace),
                namespaceLabels=pairs("--namespace-label", self.namespace_label, "team=ml"),
                queues=queues(
                    self.queue,
                    tenant=self.name,
                    existing=self.existing_queue,
                    parent=self.parent,
                    deserved=self.deserved,
                    limit=self.limit,
                ),
                admins=list(self.admins),
                members=list(self.members),
                quota={
                    "gpus": counts("--gpus", self.gpus, "gpu.fairlead.dev=8") or None,
                    "claims": self.claims,
                    "pods": self.pods,
                    "cpu": self.cpu,
                    "memory": self.memory,
                },
                network={
                    "isolate": None if self.network_policies else False,
                    "egress": peers("--egress", self.egress) or None,
                    "ingress": peers("--ingress", self.ingress) or None,
                },
                podSecurity=None if self.pod_security == "restricted" else self.pod_security,
                priorityClasses={"shared": None, "per-tenant": "PerTenant", "none": "None"}[self.priority_classes],
            )
            raw = work.read(self.file, given) if self.file is not None else given
        except FlagError as error:
            raise typer.BadParameter(str(error), param_hint=error.flag) from None
        try:
            tenant = Tenant.read(raw)
        except ManifestError as error:
            faults = [f"{self.file}: {fault}" for fault in error.faults] if self.file is not None else named(error)
            say("\n".join(faults), file=sys.stderr)
            return 2
        if self.dry_run:
            work.show(tenant, "json" if self.output == "json" else "yaml")
            return 0
        return work.create(
            tenant, adopt=self.adopt, kubeconfig=self.kubeconfig, context=self.context, output=self.output
        )


@dataclass(frozen=True, kw_only=True)
class List(Shown):
    """List the cluster's tenants: namespaces, queues, Pod Security, and what their quotas of devices have left."""

    def run(self) -> int:
        from fairlead.cli.tenant.listing import show_all

        return show_all(kubeconfig=self.kubeconfig, context=self.context, output=self.output)


@dataclass(frozen=True, kw_only=True)
class Show(Shown):
    """Show every object of a tenant that you may list, and how it is removed."""

    name: Annotated[str, typer.Argument(help="The tenant's name.")]

    def run(self) -> int:
        from fairlead.cli.tenant.listing import show_one

        return show_one(self.name, kubeconfig=self.kubeconfig, context=self.context, output=self.output)
