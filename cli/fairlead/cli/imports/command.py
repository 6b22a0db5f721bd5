"""`fairlead import`: reads files, standard input or a cluster, prints what becomes of it. Writes to no cluster.

YAML for kubectl has what has no equal as comments at its object, JSON has it as `notes`.

Exit status: 0 imported; 1 with `--strict`: imported, and something has no equal; 2 nothing was imported.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from fairlead.api.base import CustomResource
from fairlead.bounded import files
from fairlead.bounded.limits import BoundError
from fairlead.cli.imports import kueue, runai, volcano, yunikorn
from fairlead.cli.imports.model import Document, Fault, Imported, Note, RefusedError, Source, System, documents, plain
from fairlead.cli.imports.yunikorn import CONFIG_MAP
from fairlead.cli.printer import say
from fairlead.cli.reading import OfCluster
from fairlead.kube import errors
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

GROUPS: dict[System, tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = {
    "kueue": (
        (
            "kueue.x-k8s.io",
            (
                ("ClusterQueue", "clusterqueues"),
                ("Cohort", "cohorts"),
                ("LocalQueue", "localqueues"),
                ("ResourceFlavor", "resourceflavors"),
                ("Topology", "topologies"),
                ("WorkloadPriorityClass", "workloadpriorityclasses"),
            ),
        ),
    ),
    "volcano": (("scheduling.volcano.sh", (("Queue", "queues"),)),),
    "runai": (
        ("scheduling.run.ai", (("Queue", "queues"), ("Department", "departments"))),
        ("run.ai", (("Project", "projects"), ("Department", "departments"))),
    ),
}
VERSIONS = ("v2", "v1", "v1beta2", "v1beta1", "v1alpha1")
"""Of those that a cluster serves the first of these is read."""
_NAMESPACED = {"LocalQueue"}


async def read(cluster: Cluster, system: System) -> list[Document]:
    """Raises NotReadError."""
    if system == "yunikorn":
        return await _config_maps(cluster)
    found: list[Document] = []
    served = await _served(cluster)
    groups = GROUPS[system]
    if not any(group in served for group, _ in groups):
        names = " and ".join(group for group, _ in groups)
        raise NotReadError(f"this cluster serves nothing of {names}: name another cluster with --kubeconfig, or files")
    for group, kinds in groups:
        for resource in await _resources(cluster, group, served.get(group, ()), dict(kinds)):
            found += [
                Document(
                    f"the cluster's {resource}", {**item, "kind": resource.kind, "apiVersion": resource.api_version}
                )
                for item in await cluster.list(resource)
            ]
    return found


async def _served(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The versions of each API group."""
    groups = (await cluster.document("/apis")).get("groups") or ()
    return {each["name"]: tuple(version["version"] for version in each.get("versions") or ()) for each in groups}


async def _resources(
    cluster: Cluster, group: str, served: tuple[str, ...], kinds: dict[str, str]
) -> list[Resource[Raw]]:
    """Each kind once, in the newest of the versions that serve it."""
    found: dict[str, Resource[Raw]] = {}
    for version in (version for version in VERSIONS if version in served):
        for entry in (await cluster.document(f"/apis/{group}/{version}")).get("resources") or ():
            kind = entry.get("kind")
            if kind in kinds and entry.get("name") == kinds[kind] and kind not in found:
                found[kind] = Resource(
                    group=group,
                    version=version,
                    plural=kinds[kind],
                    kind=kind,
                    namespaced=kind in _NAMESPACED,
                    type=dict,
                )
    return [found[kind] for kind in kinds if kind in found]


async def _config_maps(cluster: Cluster) -> list[Document]:
    resource: Resource[Raw] = Resource(
        group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=dict
    )
    try:
        found = (await cluster.client.list(resource, fields=f"metadata.name={CONFIG_MAP}")).items
    except errors.ApiError as error:
        raise not_read(error, "list", resource, None) from error
    if not found:
        raise NotReadError(
            f"this cluster has no ConfigMap {CONFIG_MAP}: name another cluster with --kubeconfig, or a queues.yaml"
        )
    return [Document(f"the cluster's {resource}", {**item, "kind": "ConfigMap", "apiVersion": "v1"}) for item in found]


WIDTH = 120
READERS: dict[System, Callable[[Iterable[Document]], Imported]] = {
    "kueue": kueue.read,
    "volcano": volcano.read,
    "yunikorn": yunikorn.read,
    "runai": runai.read,
}
"""Each takes documents, and raises RefusedError with every fault."""
SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, kw_only=True)
class Import(OfCluster):
    """Print another system's queues as Queues, Flavors and TenancyPolicies, and what has no equal. Applies nothing.

    Look at the result, then: kubectl apply -f FILE. What has no equal is a comment at its object, and a line on standard error.
    Exit code 0: printed. 1: printed, with --strict, and something has no equal. 2: refused, or not to be read.
    """

    system: Annotated[
        System,
        typer.Option("--from", help="Whose queues: Kueue, Volcano, YuniKorn, or KAI-Scheduler and Run:ai (runai)."),
    ]
    files: Annotated[
        tuple[Path, ...],
        typer.Argument(
            help="Files, directories, or - for standard input. Default: what the cluster has.", metavar="[FILE…]"
        ),
    ] = ()
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="YAML with comments, or JSON with notes.")
    ] = "yaml"
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when something has no equal.")] = False

    def run(self) -> int:
        if self.files and (self.kubeconfig is not None or self.context is not None):
            raise typer.BadParameter("files and a cluster cannot be read together: leave out one", param_hint="FILE")
        try:
            if self.files:
                found = [each for path in self.files for each in of_path(path)]
            else:
                found = self.ask(lambda cluster: read(cluster, self.system), unread=2)
            imported = READERS[self.system](found)
        except RefusedError as error:
            for fault in error.faults:
                say(fault, file=sys.stderr)
            say(f"nothing is imported: {len(error.faults)} faults", file=sys.stderr)
            return 2
        say(as_json(imported) if self.output == "json" else as_yaml(imported, self.system), end="")
        for note in imported.notes:
            say(note, file=sys.stderr)
        counts = ((imported.queues, "Queues"), (imported.flavors, "Flavors"), (imported.policies, "TenancyPolicies"))
        written = ", ".join(f"{len(each)} {name}" for each, name in counts)
        say(f"{written}; {imported.lost} without an equal", file=sys.stderr)
        return int(self.strict and imported.lost > 0)


def of_path(path: Path) -> list[Document]:
    """The documents of a file, of a directory's files in the order of their names, or of standard input (-)."""
    try:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise RefusedError(
                    [Fault(Source(plain(str(path))), "", "holds no .yaml, .yml or .json file: name files")]
                )
            return [document for each in inside for document in of_path(each)]
        return documents(files.read(path), "standard input" if str(path) == "-" else str(path))
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}; name a file, a directory or - for standard input"
        raise RefusedError([Fault(Source(plain(str(path))), "", text)]) from None
    except BoundError as error:
        raise RefusedError([Fault(Source(plain(str(path))), "", str(error))]) from None


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(imported: Imported, system: str) -> str:
    """Flavors, queues, policies, in the order in which they can be applied."""
    loose = [note for note in imported.notes if _of(note, imported) is None]
    head = [
        f"# Imported by fairlead import --from {system}. Read the lines that say `no equal`, then: kubectl apply -f FILE"
    ]
    parts = ["\n".join([*head, *_comments(loose, with_source=True)]) + "\n"]
    for each in objects(imported):
        key = (str(each["kind"]), str(each["metadata"]["name"]))
        lines = [f"# from {source.subject} ({source.where})" for source in imported.sources.get(key, ())[:8]]
        lines += _comments([note for note in imported.notes if _of(note, imported) == key], with_source=False)
        text = yaml.dump(each, Dumper=_Plain, sort_keys=False, width=1_000_000)
        parts.append("\n".join([*lines, text]))
    return "---\n".join(parts)


def as_json(imported: Imported) -> str:
    """A List; `notes` beside its items."""
    notes = [
        {
            "level": "noEqual" if note.lost else "note",
            "source": _source(note.source),
            "path": note.path or None,
            "text": note.text,
            "about": None if note.about is None else {"kind": note.about[0], "name": note.about[1]},
        }
        for note in imported.notes
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(imported), "notes": notes}, indent=2) + "\n"


def objects(imported: Imported) -> list[dict[str, Any]]:
    """The objects as kubectl applies them: without what is default."""
    return [_object(each) for each in (*imported.flavors, *imported.queues, *imported.policies)]


def _object(each: CustomResource) -> dict[str, Any]:
    raw = each.model_dump(by_alias=True, exclude_unset=True, exclude={"status"}, mode="json")
    return {key: _whole(raw[key]) for key in ("apiVersion", "kind", "metadata", "spec")}


def _whole(value: Any) -> Any:
    """A weight as people write it: 2 for 2.0."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _of(note: Note, imported: Imported) -> tuple[str, str] | None:
    return note.about if note.about in imported.sources else None


def _source(source: Source) -> dict[str, str | None]:
    return {"where": source.where, "kind": source.kind or None, "name": source.name or None}


def _comments(notes: list[Note], *, with_source: bool) -> list[str]:
    found: list[str] = []
    for note in notes:
        subject = note.source.subject if with_source else ""
        text = ": ".join(part for part in (note.word, subject, note.path, note.text) if part)
        found += textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
    return found
