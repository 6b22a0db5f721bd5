"""What `cost` and `report` read: the ledger, and Flavors and Queues of a file or of a cluster. Errors are messages for the user."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.views import reading
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


@contextlib.contextmanager
def opened(where: str) -> Iterator[Reader]:
    """The ledger there, closed behind. Raises CostError where there is none."""
    if not where:
        raise CostError(
            "no ledger is named: write --ledger DIR|URL or set FAIRLEAD_LEDGER to where the controller keeps it (docs/cost.md)"
        )
    try:
        with contextlib.closing(open_reader(where)) as reader:
            yield reader
    except LedgerError as error:
        raise CostError(f"the ledger cannot be read: {error}") from error


def settings(file: Path | None, kubeconfig: Path | None, context: str | None) -> tuple[int, Settings | None]:
    """The exit code, and what was read or None; messages of a cluster go to standard error. Raises CostError for a file."""
    if file is not None:
        return 0, _of_file(file)

    async def ask(cluster: Cluster) -> tuple[list[Raw], list[Raw]]:
        return await cluster.list(resources.FLAVORS), await list_if_allowed(cluster, resources.QUEUES)

    code, found = reading.run(ask, kubeconfig=kubeconfig, context=context)
    if found is None:
        return code, None
    return 0, Settings(_flavors(found[0], "the cluster"), tuple(found[1]))


def _of_file(file: Path) -> Settings:
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
