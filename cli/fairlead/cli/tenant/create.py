"""`fairlead tenant create`: a tenant's description from flags or a file; its objects are printed, or applied, and what was done is said.

Each flag's text is read here; what the values may be is the description's to say (`fairlead.api.tenant`), and `named` puts the flag before
its faults.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
import yaml

from fairlead.api.base import ManifestError
from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import objects, shared_objects
from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli import printer
from fairlead.cli.printer import say
from fairlead.cli.reading import OfCluster
from fairlead.cli.tenant.applying import Applying, Outcome
from fairlead.ui.reading.cluster import Cluster

FLAGS: Final = {
    "name": "NAME",
    "namespaces": "--namespace",
    "namespaceLabels": "--namespace-label",
    "queues": "--queue",
    "admins": "--admins",
    "members": "--members",
    "quota.gpus": "--gpus",
    "quota.claims": "--claims",
    "quota.pods": "--pods",
    "quota.cpu": "--cpu",
    "quota.memory": "--memory",
    "network.egress": "--egress",
    "network.ingress": "--ingress",
}


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
        bool, typer.Option("--adopt", help="Take over what exists and is no tenant's, and fields that others wrote.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print all objects; ask no cluster.")] = False
    output: Annotated[
        Literal["text", "yaml", "json"],
        typer.Option("--output", "-o", help="Of --dry-run: yaml (default) or json. Else: lines, or what was done."),
    ] = "text"

    def run(self) -> int:
        try:
            given = self._given()
            raw = _description_in(self.file, given) if self.file is not None else given
        except FlagError as error:
            raise typer.BadParameter(str(error), param_hint=error.flag) from None
        try:
            tenant = Tenant.read(raw)
        except ManifestError as error:
            faults = [f"{self.file}: {fault}" for fault in error.faults] if self.file is not None else named(error)
            say("\n".join(faults), file=sys.stderr)
            return 2
        if self.dry_run:
            self._print(tenant)
            return 0
        return self._apply(tenant)

    def _given(self) -> dict[str, Any]:
        """The description that flags make. Raises FlagError."""
        return description(
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

    def _print(self, tenant: Tenant) -> None:
        """All its objects, those that tenants share first."""
        found = [*shared_objects(tenant), *objects(tenant)]
        if self.output == "json":
            printer.structured({"apiVersion": "v1", "kind": "List", "items": found}, "json")
            return
        plain = json.loads(json.dumps(found))  # each by itself: no anchors
        say(yaml.safe_dump_all(plain, sort_keys=False, allow_unicode=True, width=4096), end="")

    def _apply(self, tenant: Tenant) -> int:
        done: list[Outcome] = []

        def told(outcome: Outcome) -> None:
            done.append(outcome)
            if self.output == "text":
                say(outcome.line(), flush=True)

        async def work(cluster: Cluster) -> list[str]:
            applying = Applying(cluster.client, tenant, adopt=self.adopt, done=told)
            refused = await applying.run()
            for line in refused or await applying.notes():
                say(line, file=sys.stderr)
            return refused

        try:
            refused = self.ask(work)
        finally:
            if self.output != "text":
                printer.structured([each.as_json() for each in done], self.output)
        return 1 if refused else 0


def _description_in(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The description in the file. Raises FlagError where flags describe something, too, but its name."""
    if more := sorted(set(given) - {"name"}):
        raise FlagError(
            "--filename", f"{file} describes the tenant, and flags do ({', '.join(more)}): use one of the two"
        )
    try:
        raw = yaml_text.document(files.read(file, bytes_max=SMALL.bytes), SMALL)
    except (OSError, UnreadableError) as error:
        raise FlagError("--filename", f"{file} cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise FlagError("--filename", f"{file} is no description: write name: NAME and what else it has")
    if given.get("name", raw.get("name")) != raw.get("name"):
        raise FlagError("--filename", f"{file} describes {raw.get('name')!r}, not {given['name']!r}: give one name")
    return raw


class FlagError(ValueError):
    """The text has value and next step."""

    def __init__(self, flag: str, text: str) -> None:
        super().__init__(text)
        self.flag = flag


def named(error: ManifestError) -> list[str]:
    """Its faults, each with the flag that the field comes from."""
    lines = []
    for fault in error.faults:
        path = re.match(r"[A-Za-z.]*", fault)
        field = path.group() if path else ""
        flag = next((FLAGS[each] for each in sorted(FLAGS, reverse=True) if field.startswith(each)), "")
        lines.append(f"{flag}: {fault}" if flag else fault)
    return lines


def pairs(flag: str, given: Iterable[str], example: str) -> dict[str, str]:
    """`KEY=VALUE` each; a key given twice is refused."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise FlagError(flag, f"{text!r} is not KEY=VALUE: write it as {example}")
        if key in found:
            raise FlagError(flag, f"{key!r} is given twice, {found[key]!r} and {value!r}: keep one")
        found[key] = value
    return found


def counts(flag: str, given: Iterable[str], example: str) -> dict[str, int]:
    """`KEY=N` each."""
    found = {}
    for key, value in pairs(flag, given, example).items():
        if not (value.isascii() and value.isdigit()):
            raise FlagError(flag, f"{key}={value}: {value!r} is no number of devices: write it as {example}")
        found[key] = int(value)
    return found


def queues(
    given: Sequence[str],
    *,
    tenant: str,
    existing: bool,
    parent: str | None,
    deserved: Sequence[str],
    limit: Sequence[str],
) -> list[dict[str, Any]]:
    """The queues: `NAME` or `NAME=NAMESPACE,…` each; quota is `FLAVOR=N`, of one of several queues `QUEUE/FLAVOR=N`."""
    found: dict[str, dict[str, Any]] = {}
    for text in given or ([tenant] if existing or parent or deserved or limit else ()):
        name, equals, listed = text.partition("=")
        queue: dict[str, Any] = {"name": name}
        if equals:
            queue["namespaces"] = [each for each in listed.split(",") if each]
        if existing:
            queue["create"] = False
        if parent:
            queue["parent"] = parent
        if name in found:
            raise FlagError("--queue", f"{name!r} is given twice: list its namespaces in one, as {name}=a,b")
        found[name] = queue
    for flag, field, amounts in (("--deserved", "deserved", deserved), ("--limit", "limit", limit)):
        for key, value in pairs(flag, amounts, "h100=8").items():
            name, slash, flavor = key.rpartition("/")
            if not slash and len(found) > 1:
                raise FlagError(flag, f"{key}={value}: there are {len(found)} queues: write QUEUE/{key}={value}")
            if slash and name not in found:
                raise FlagError(flag, f"{key}={value}: {name!r} is none of the queues ({', '.join(found)}): name one")
            quota = found[name if slash else next(iter(found))].setdefault("flavors", [])
            _entry(quota, flavor)[field] = int(value) if value.isdigit() else value
    return list(found.values())


def _entry(quota: list[dict[str, Any]], flavor: str) -> dict[str, Any]:
    for each in quota:
        if each["flavor"] == flavor:
            return each
    quota.append({"flavor": flavor})
    return quota[-1]


def peers(flag: str, given: Iterable[str]) -> list[dict[str, Any]]:
    """`CIDR` or `namespace:NAME`, each optionally with `=PORT,…`, and `/UDP` after the ports."""
    found = []
    for text in given:
        where, equals, ports = text.partition("=")
        kind, colon, name = where.partition(":")
        peer: dict[str, Any] = {"namespace": name} if colon and kind == "namespace" else {"cidr": where}
        if equals:
            ports, slash, protocol = ports.partition("/")
            if not re.fullmatch(r"[0-9]+(,[0-9]+)*", ports):
                raise FlagError(
                    flag, f"{text!r}: {ports!r} are no ports: write {where}=443, or leave = away for all ports"
                )
            peer["ports"] = [int(each) for each in ports.split(",")]
            if slash:
                peer["protocol"] = protocol
        found.append(peer)
    return found


def description(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {key: value for key, each in fields.items() if (value := _given(each)) not in (None, {}, [])}


def _given(value: Any) -> Any:
    return (
        description(**value) if isinstance(value, Mapping) and any(each is None for each in value.values()) else value
    )
