"""`fairlead check FILE…`: the webhook's verdicts on manifests, with the policies in files or in a cluster.

For CI: refuses what `kubectl apply` would refuse, with the same messages, and finds what another system's controller would make go
wrong afterwards (`traps`). Writes nothing to any cluster.
Exit status: 0 everything is admitted, 1 something is refused or fails, 2 a file or the cluster cannot be read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from fairlead.api import names
from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.cli.checks import settings
from fairlead.cli.checks.traps import table
from fairlead.cli.checks.traps.base import Trap
from fairlead.cli.limits import TooLongError, cpu_at_most
from fairlead.cli.printer import console, say
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.kube.flags import DRIVERS, ManagedDrivers, SharedClaimDrivers
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    FLAVORS,
    NAMESPACES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TENANCY_POLICIES,
)
from fairlead.ui.reading.cluster import Cluster, NotReadError
from fairlead.ui.reading.manifests import documents
from fairlead.webhook.offline import GROUPS, Result, judge, world_of

Json = dict[str, Any]
_COLORS = {"refused": "red", "patched": "green", "allowed": "green", "untouched": "dim"}
JUDGE_S = 60.0  # of CPU
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


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """Say what the webhook would say of manifests, what the pods of their jobs would get, and what other controllers make go wrong."""

    files: Annotated[
        tuple[Path, ...],
        typer.Argument(
            help="Manifests: files, directories, or - for standard input; also jupyterhub_config.py or its chart's values, a compiled "
            "pipeline of Kubeflow, backend_config.json of an MLflow Project.",
            metavar="FILE…",
        ),
    ]
    policies: Annotated[
        tuple[Path, ...],
        typer.Option("--policies", help="Manifests that the verdicts depend on, but that are not judged.", exists=True),
    ] = ()
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Take policies, classes, templates and devices from this cluster, too.", exists=True),
    ] = None
    user: Annotated[str, typer.Option("--as", help="User that applies them, for exemptions.")] = "fairlead-check"
    groups: Annotated[tuple[str, ...], typer.Option("--as-group", help="Group of that user.")] = ()
    managed_drivers: ManagedDrivers = DRIVERS
    shared_claim_drivers: SharedClaimDrivers = ()
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Form of the answer.")] = "text"

    def run(self) -> int:
        try:
            read = {path: settings.read(path) for path in self.files}
            documents = list(documents_of([path for path, found in read.items() if found is None]))
            of_cluster, serves = asyncio.run(_cluster(self.kubeconfig)) if self.kubeconfig else ([], frozenset[str]())
            context = [*of_cluster, *documents_of(self.policies)]
        except (OSError, ValueError, CredentialsError, errors.ApiError, NotReadError) as error:
            say(error, file=sys.stderr)
            return 2
        world = world_of(
            [*context, *documents],
            served_apis=serves,
            drivers=self.managed_drivers,
            shared_drivers=self.shared_claim_drivers,
        )
        every_group = GROUPS | set(self.groups)
        everything = [*documents, *(found for found in read.values() if found is not None)]
        answers: list[Answer] = []
        try:
            with cpu_at_most(JUDGE_S):
                for document in everything:
                    results = tuple(judge(document, world, username=self.user, groups=every_group))
                    traps = tuple(table.find(document, [*everything, *context]))
                    answers.append(Answer(document=document, results=results, traps=traps))
        except TooLongError:
            say(
                f"{len(answers)} of {len(everything)} objects were judged in {JUDGE_S:g} s of CPU time, which is all that is taken: check fewer "
                "at once, or with fewer policies",
                file=sys.stderr,
            )
            return 2
        if self.output == "json":
            say(json.dumps([each for answer in answers for each in answer.json], indent=1, ensure_ascii=False))
        else:
            _show(answers, console(highlight=False, soft_wrap=True))
        for fault in world.faults:
            say(fault, file=sys.stderr)
        return int(any(answer.wrong for answer in answers))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said of one object: the verdicts on it and on what it would create, and its traps."""

    document: Json
    results: tuple[Result, ...]
    traps: tuple[Trap, ...]

    @property
    def wrong(self) -> bool:
        return any(not result.allowed for result in self.results) or any(trap.level == "fails" for trap in self.traps)

    @property
    def subject(self) -> str:
        """Kind and name, for an object that is not judged."""
        metadata = self.document.get("metadata")
        found = metadata if isinstance(metadata, dict) else {}
        name = "/".join(str(found[key]) for key in ("namespace", "name") if found.get(key))
        return f"{self.document.get('kind')} {name}"

    @property
    def json(self) -> list[Json]:
        """An entry for each verdict, the first with the traps; one for traps of an object that is not judged."""
        traps = [{"level": trap.level, "field": trap.field, "message": trap.text} for trap in self.traps]
        entries = [_json(result) for result in self.results]
        if traps and not entries:
            metadata = self.document.get("metadata") or {}
            name = {
                "kind": self.document.get("kind"),
                "namespace": metadata.get("namespace"),
                "name": metadata.get("name"),
            }
            return [{**name, "verdict": "not judged", "traps": traps}]
        return [{**entry, "traps": [] if number else traps} for number, entry in enumerate(entries)]


def documents_of(paths: Sequence[Path]) -> Iterator[Json]:
    """The objects of files, directories and standard input (-), Lists unpacked. Raises OSError, ValueError."""
    for path in paths:
        if path.is_dir():
            yield from documents_of(sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file()))
            continue
        try:
            text = files.text(path)
        except UnreadableError as error:
            raise UnreadableError(f"{path}: {error}") from None
        yield from documents(text, str(path))


async def _cluster(kubeconfig: Path) -> tuple[list[Json], frozenset[str]]:
    """What verdicts depend on in the cluster: its objects, and the API groups of other systems. Raises NotReadError."""
    async with Client.connect(kubeconfig, user_agent="fairlead-check") as client:
        cluster = Cluster(client)
        found = [{**item, "kind": resource.kind} for resource in _CLUSTER for item in await cluster.list(resource)]
        groups = (await cluster.document("/apis")).get("groups") or ()
        return found, frozenset({group.get("name") for group in groups} & {names.KUEUE_API})


def _show(answers: list[Answer], shown: Console) -> None:
    for answer in answers:
        if not answer.results and answer.traps:
            shown.print(Text(f"not judged {answer.subject}", style="default"))
        _show_results(answer.results[:1], shown)
        for trap in answer.traps:
            style = "red" if trap.level == "fails" else "yellow"
            shown.print(Text(f"  {trap.level}: {trap}", style=style))
        _show_results(answer.results[1:], shown)
    results = [result for answer in answers for result in answer.results]
    refused = sum(not result.allowed for result in results)
    judged = sum(not result.source for result in results)
    shown.print(f"{len(answers)} objects, {judged} judged, {refused} verdicts refused")
    failing = sum(trap.level == "fails" for answer in answers for trap in answer.traps)
    if failing:
        shown.print(
            f"{failing} fields that will fail: admitted, but what its controller makes of it does not run as it says"
        )


def _show_results(results: Sequence[Result], shown: Console) -> None:
    said: set[tuple[str, str]] = set()
    for result in results:
        line = Text(f"{result.outcome:<10}", style=_COLORS[result.outcome])
        line.append(result.review.subject, style="default")
        if result.source:
            line.append(f" (of {result.source})", style="dim")
        shown.print(line)
        subject = result.source or result.review.subject
        gang = result.gang
        lines = [
            str(gang) if gang else "",
            gang.on_models if gang and gang.name else "",
            f"claims {result.claims}" if result.claims else "",
        ]
        for line_of in (each for each in lines if each and (subject, each) not in said):
            said.add((subject, line_of))  # the pods of one workload mostly go the same way
            shown.print(Text(f"  {line_of}", style="dim"))
        for fault in result.last.message.split("\n") if not result.allowed else ():
            shown.print(Text(f"  {fault}", style="red"))
        for warning in result.warnings:
            shown.print(Text(f"  warning: {warning}", style="yellow"))
        for note in result.audit:
            shown.print(Text(f"  audit: {note}", style="dim"))


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
        "gang": None
        if result.gang is None
        else {
            "name": result.gang.name or None,
            "size": result.gang.size,
            "queue": result.gang.queue,
            "models": result.gang.models,
        },
        "patch": list(result.mutated.patch) if result.allowed else [],
    }
