"""`fairlead check FILE…`: the webhook's verdicts on manifests, with the policies in files or in a cluster.

For CI: refuses what `kubectl apply` would refuse, with the same messages. Writes nothing to any cluster.
Exit status: 0 everything is admitted, 1 something is refused, 2 a file or the cluster cannot be read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    FLAVORS,
    NAMESPACES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TENANCY_POLICIES,
    raw,
)
from fairlead.ui.reading.errors import NotReadError, not_read
from fairlead.ui.reading.manifests import documents
from fairlead.webhook.offline import GROUPS, Result, judge, world_of

Json = dict[str, Any]
_COLORS = {"refused": "red", "patched": "green", "allowed": "green", "untouched": "dim"}
_SUFFIXES = {".yaml", ".yml", ".json"}
_CLUSTER = (
    DEVICE_CLASSES,
    FLAVORS,
    NAMESPACES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TENANCY_POLICIES,
)


def check(
    files: Sequence[Path],
    *,
    policies: Sequence[Path] = (),
    kubeconfig: Path | None = None,
    user: str = "fairlead-check",
    groups: Sequence[str] = (),
    drivers: tuple[str, ...] = (names.DRIVER,),
    output: str = "text",
    console: Console | None = None,
) -> int:
    """Print a verdict per object; returns the exit status."""
    try:
        documents = list(documents_of(files))
        of_cluster, serves = asyncio.run(_cluster(kubeconfig)) if kubeconfig else ([], frozenset[str]())
        context = [*of_cluster, *documents_of(policies)]
    except (OSError, yaml.YAMLError, ValueError, errors.ApiError, NotReadError) as error:
        print(error, file=sys.stderr)
        return 2
    world = world_of([*context, *documents], served_apis=serves, drivers=drivers)
    every_group = GROUPS | set(groups)
    results = [each for document in documents for each in judge(document, world, username=user, groups=every_group)]
    if output == "json":
        print(json.dumps([_json(result) for result in results], indent=1, ensure_ascii=False))
    else:
        _show(results, len(documents), console or Console(highlight=False, soft_wrap=True))
    for fault in world.faults:
        print(fault, file=sys.stderr)
    return int(any(not result.allowed for result in results))


def documents_of(paths: Sequence[Path]) -> Iterator[Json]:
    """The objects of files, directories and standard input (-), Lists unpacked. Raises OSError, YAMLError, ValueError."""
    for path in paths:
        if path.is_dir():
            yield from documents_of(sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file()))
            continue
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        yield from documents(text, str(path))


async def _cluster(kubeconfig: Path) -> tuple[list[Json], frozenset[str]]:
    """What verdicts depend on in the cluster: its objects, and the API groups of other systems. Raises NotReadError."""
    found: list[Json] = []
    async with Client.connect(kubeconfig, user_agent="fairlead-check") as client:
        for resource in _CLUSTER:
            try:
                listing = await client.list(raw(resource))
            except errors.ApiError as error:
                raise not_read(error, "list", resource, None) from error
            found += [{**item, "kind": resource.kind} for item in listing.items]
        groups = json.loads(await client.request("GET", "/apis")).get("groups") or ()
        return found, frozenset({group.get("name") for group in groups} & {names.KUEUE_API})


def _show(results: list[Result], documents: int, console: Console) -> None:
    said: set[tuple[str, str]] = set()
    for result in results:
        line = Text(f"{result.outcome:<10}", style=_COLORS[result.outcome])
        line.append(result.review.subject, style="default")
        if result.source:
            line.append(f" (of {result.source})", style="dim")
        console.print(line)
        way = (result.source or result.review.subject, result.claims)
        if result.claims and way not in said:  # the pods of one workload mostly go the same way
            said.add(way)
            console.print(Text(f"  claims {result.claims}", style="dim"))
        for fault in result.last.message.split("\n") if not result.allowed else ():
            console.print(Text(f"  {fault}", style="red"))
        for warning in result.warnings:
            console.print(Text(f"  warning: {warning}", style="yellow"))
        for note in result.audit:
            console.print(Text(f"  audit: {note}", style="dim"))
    refused = sum(not result.allowed for result in results)
    judged = sum(not result.source for result in results)
    console.print(f"{documents} objects, {judged} judged, {refused} verdicts refused")


def _json(result: Result) -> Json:
    return {
        "kind": result.review.kind,
        "namespace": result.review.namespace,
        "name": result.review.name,
        "madeBy": result.source or None,
        "verdict": result.outcome,
        "message": result.last.message or None,
        "warnings": list(result.warnings),
        "audit": list(result.audit),
        "findings": [
            {"policy": found.policy, "rule": found.rule, "mode": found.mode, "message": found.text}
            for found in result.findings
        ],
        "claims": result.claims or None,
        "patch": list(result.mutated.patch) if result.allowed else [],
    }
