"""`fairlead flavors`: the kinds of device, and resources of pods, that queues count, with how much there is and is allocated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from fairlead.cli import completion
from fairlead.cli.listing import Listing, Row
from fairlead.cli.printer import Cell, Column
from fairlead.kube import resources
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.reading.cluster import Cluster

COLUMNS = (
    Column(title="FLAVOR", least=8, most=32),
    Column(title="MEASURE"),
    Column(title="ALLOCATED", right=True),
    Column(title="TOTAL", right=True),
    Column(title="COUNTS", least=16, most=64, dispensable=1),
)


@dataclass(frozen=True, kw_only=True)
class Flavors(Listing):
    """List flavors: what queues count, in which measure, how much of it there is, and how much gangs have."""

    kind: ClassVar[str] = "flavor"
    watches: ClassVar[tuple[Resource[Any], ...]] = (resources.FLAVORS,)

    names: Annotated[
        tuple[str, ...], typer.Argument(metavar="[NAME]...", help="Only these.", autocompletion=completion.flavors)
    ] = ()

    def columns(self) -> Sequence[Column]:
        return COLUMNS

    async def rows(self, cluster: Cluster) -> list[Row]:
        return [_row(each) for each in await cluster.list(resources.FLAVORS)]

    def none(self) -> str:
        return "no flavors: no queue has a quota; see docs/queues.md"

    def notes(self, rows: Sequence[Row]) -> Iterator[str]:
        yield from (f"flavor {row.name}: {row.value['problem']}" for row in rows if row.value["problem"])


def _row(flavor: Raw) -> Row:
    meta, spec, status = flavor["metadata"], flavor.get("spec") or {}, flavor.get("status") or {}
    ready: Raw = next((each for each in status.get("conditions") or [] if each.get("type") == "Ready"), {})
    value = {
        "name": meta["name"],
        "measure": spec.get("measure", "Devices"),
        "allocated": _text(status.get("allocated")),
        "total": _text(status.get("total")),
        "counts": _counts(spec),
        "devices": status.get("devices"),
        "problem": str(ready.get("message") or "") if ready.get("status") == "False" else "",
    }
    return Row(
        name=meta["name"],
        reference=f"flavor.fairlead.dev/{meta['name']}",
        lines=[[Cell(str(value[key] or "-")) for key in ("name", "measure", "allocated", "total", "counts")]],
        value=value,
        labels=(meta.get("labels") or {},),
    )


def _text(amount: Any) -> str | None:
    """As the API writes it; None before the controller has computed it."""
    return None if amount is None else str(amount)


def _counts(spec: Raw) -> str:
    """What is of the flavor: a resource on nodes with these labels, or a driver's devices that a selector selects."""
    if spec.get("resourceName"):
        nodes = ",".join(f"{key}={value}" for key, value in sorted((spec.get("nodeSelector") or {}).items()))
        return str(spec["resourceName"]) + (f" on nodes with {nodes}" if nodes else "")
    what = (str(spec.get(key) or "") for key in ("driver", "deviceSelector"))
    capacity = str(spec.get("capacityName") or "")
    return (f"{capacity} of " if capacity else "") + ", ".join(filter(None, what))
