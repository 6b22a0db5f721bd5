"""What `cost` and `report` read: the ledger, and Flavors and Queues of a file or of a cluster. Errors are messages for the user."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.reading import OfCluster
from fairlead.history.cost.window import CostError, Reader
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.reading.cluster import Cluster, list_if_allowed


def now_s() -> float:
    """Unix seconds."""
    return time.time()


class Settings(NamedTuple):
    flavors: tuple[Flavor, ...]
    queues: tuple[Raw, ...]


Window = Annotated[
    str, typer.Option(metavar="SPAN", help="30d, 2026-11-01..2026-12-01 (the end excluded), month or last-month; UTC.")
]


@dataclass(frozen=True, kw_only=True)
class Priced(OfCluster):
    """One that reads the ledger, and prices."""

    ledger: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            envvar="FAIRLEAD_LEDGER",
            help="Where the controller keeps the ledger. Default: $FAIRLEAD_LEDGER.",
        ),
    ] = ""
    flavors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Flavors (and Queues) in YAML, for prices. Default: those of the cluster.",
            exists=True,
            dir_okay=False,
        ),
    ] = None

    def settings(self) -> Settings:
        """Of the file, or of the cluster. Raises CostError for the file."""
        if self.flavors is not None:
            return of_file(self.flavors)

        async def look(cluster: Cluster) -> tuple[list[Raw], list[Raw]]:
            return await cluster.list(resources.FLAVORS), await list_if_allowed(cluster, resources.QUEUES)

        flavors, queues = self.ask(look)
        return Settings(_flavors(flavors, "the cluster"), tuple(queues))


@contextlib.contextmanager
def opened(where: str) -> Iterator[Reader]:
    """The ledger there, closed behind. Raises CostError where there is none."""
    if not where:
        raise CostError(
            "no ledger is named: write --ledger DIR|URL or set FAIRLEAD_LEDGER to where the controller keeps it (docs/ledger.md)"
        )
    try:
        with contextlib.closing(open_reader(where)) as reader:
            yield reader
    except LedgerError as error:
        raise CostError(f"the ledger cannot be read: {error}") from error


def of_file(file: Path) -> Settings:
    try:
        objects = list(_objects(yaml_text.documents(files.read(file))))
    except (OSError, UnreadableError) as error:
        raise CostError(f"{file}: cannot be read as YAML: {error}") from None
    for each in objects:
        if not isinstance(each, dict) or not isinstance(each.get("metadata"), dict):
            raise CostError(
                f"{file}: {str(each)[:60]!r} is no Kubernetes object: write Flavors, and Queues if you like"
            )
    flavors = [each for each in objects if each.get("kind") == "Flavor"]
    if not flavors:
        raise CostError(
            f"{file} holds no Flavor, so nothing has a price; `kubectl get flavors.fairlead.dev -o yaml` writes those of a cluster"
        )
    return Settings(_flavors(flavors, str(file)), tuple(each for each in objects if each.get("kind") == "Queue"))


def _objects(documents: Iterable[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from document["items"]
        elif document is not None:
            yield document


def _flavors(raws: Iterable[Raw], where: str) -> tuple[Flavor, ...]:
    try:
        return tuple(Flavor.stored(raw) for raw in raws)
    except ManifestError as error:
        raise CostError(f"{where}: {error}") from None
