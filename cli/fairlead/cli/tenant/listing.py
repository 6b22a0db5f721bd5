"""`fairlead tenant list` and `show`: what bears the label of a tenant, as far as the user may list it."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.api import names
from fairlead.api.tenant_objects import NAME, PER_CLASS
from fairlead.cli import printer
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.cli.tenant.applying import KINDS, described
from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.reading.cluster import Cluster, list_if_allowed

COLUMNS = (
    Column(title="TENANT", least=10),
    Column(title="NAMESPACE", least=10),
    Column(title="QUEUE", least=10),
    Column(title="POD SECURITY", dispensable=2),
    Column(title="DEVICES", least=12, dispensable=1),
)


@dataclass(frozen=True, kw_only=True)
class List(Shown):
    """List the cluster's tenants: namespaces, queues, Pod Security, and what their quotas of devices have left."""

    def run(self) -> None:
        rows = self.ask(_rows)
        if self.output != "table":
            printer.structured(rows, self.output)
        elif rows:
            fields = ("tenant", "namespace", "queue", "podSecurity")
            table = [[*(Cell(row[each]) for each in fields), Cell(_devices(row["devices"]))] for row in rows]
            printer.table(COLUMNS, table)
        else:
            text = f"no namespace has the label {names.TENANT}; create a tenant: fairlead tenant create NAME"
            say(text, file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Show(Shown):
    """Show every object of a tenant that you may list, and how it is removed."""

    name: Annotated[str, typer.Argument(help="The tenant's name.")]

    def run(self) -> int:
        found = self.ask(_labelled)
        own = [each for each in found if _tenant(each) == self.name]
        if not own:
            near = difflib.get_close_matches(self.name, sorted({_tenant(each) for each in found}))
            hint = f"did you mean {', '.join(near)}?" if near else "all tenants: fairlead tenant list"
            say(f"no object bears the label {names.TENANT}={self.name}; {hint}", file=sys.stderr)
            return 1
        if self.output != "table":
            printer.structured({"apiVersion": "v1", "kind": "List", "items": own}, self.output)
            return 0
        for each in own:
            say(described(each))
        remove = f"kubectl delete queues,namespaces -l {names.TENANT}={self.name}"
        say(f"to remove all of it, and what runs there: {remove}")
        return 0


async def _rows(cluster: Cluster) -> list[dict[str, Any]]:
    """One for each namespace of a tenant, by tenant."""
    namespaces = [each for each in await cluster.list(resources.NAMESPACES) if _tenant(each)]
    quotas = {
        each["metadata"]["namespace"]: each.get("status") or {}
        for each in await list_if_allowed(cluster, resources.RESOURCE_QUOTAS)
        if each["metadata"]["name"] == NAME
    }
    rows = [_row(each, quotas.get(each["metadata"]["name"], {})) for each in namespaces]
    return sorted(rows, key=lambda row: (row["tenant"], row["namespace"]))


def _row(namespace: Raw, status: Raw) -> dict[str, Any]:
    labels, used = namespace["metadata"]["labels"], status.get("used") or {}
    return {
        "tenant": labels[names.TENANT],
        "namespace": namespace["metadata"]["name"],
        "queue": labels.get(names.QUEUE, ""),
        "podSecurity": labels.get("pod-security.kubernetes.io/enforce", ""),
        "devices": {
            key.removesuffix(PER_CLASS): {"used": used.get(key, "0"), "hard": hard}
            for key, hard in (status.get("hard") or {}).items()
            if key.endswith(PER_CLASS)
        },
    }


def _devices(devices: dict[str, dict[str, str]]) -> str:
    return ", ".join(f"{name} {each['used']}/{each['hard']}" for name, each in devices.items()) or "no quota"


async def _labelled(cluster: Cluster) -> list[Raw]:
    """All objects with the label, of the kinds that the user may list."""
    found = []
    for kind, resource in KINDS.items():
        listed = await list_if_allowed(cluster, resource)
        found += [{"apiVersion": resource.api_version, "kind": kind, **each} for each in listed if _tenant(each)]
    return found


def _tenant(obj: Raw) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.TENANT, ""))
