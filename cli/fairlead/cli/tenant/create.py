"""`fairlead tenant create`: print a tenant's objects, or apply them and say what was created, changed and unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import objects, shared_objects
from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli.printer import say
from fairlead.cli.tenant.applying import Applying, Outcome
from fairlead.cli.tenant.flags import FlagError
from fairlead.cli.views import printing
from fairlead.cli.views.reading import run
from fairlead.ui.reading.cluster import Cluster


def read(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
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


def show(tenant: Tenant, output: str) -> None:
    """All its objects, those that tenants share first."""
    found = [*shared_objects(tenant), *objects(tenant)]
    if output == "json":
        printing.structured({"apiVersion": "v1", "kind": "List", "items": found}, "json")
        return
    plain = json.loads(json.dumps(found))  # each by itself: no anchors
    say(yaml.safe_dump_all(plain, sort_keys=False, allow_unicode=True, width=4096), end="")


def create(tenant: Tenant, *, adopt: bool, kubeconfig: Path | None, context: str | None, output: str) -> int:
    """The exit code."""
    done: list[Outcome] = []

    async def work(cluster: Cluster) -> list[str]:
        applying = Applying(cluster.client, tenant, adopt=adopt, done=lambda each: _said(each, done, output))
        refused = await applying.run()
        return refused or await _noted(applying)

    code, refused = run(work, kubeconfig=kubeconfig, context=context)
    if output != "text":
        printing.structured([each.as_json() for each in done], output)
    for line in refused or ():
        say(line, file=sys.stderr)
    return 1 if refused else code


async def _noted(applying: Applying) -> list[str]:
    for line in await applying.notes():
        say(line, file=sys.stderr)
    return []


def _said(outcome: Outcome, done: list[Outcome], output: str) -> None:
    done.append(outcome)
    if output == "text":
        say(outcome.line(), flush=True)
