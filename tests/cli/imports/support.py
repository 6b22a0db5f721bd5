"""What tests of imports share: the samples, and an import judged as the webhook and the engine judge what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cli.imports import command
from fairlead.cli.imports.command import READERS
from fairlead.cli.imports.model import Imported, System, documents
from fairlead.controller.watch import settings
from fairlead.engine.queues.tree import Tree
from fairlead.webhook.offline import judge, world_of

SAMPLES = Path(__file__).parent / "samples"
GOLDEN = Path(__file__).parent / "golden"
SYSTEMS: tuple[System, ...] = ("kueue", "volcano", "yunikorn", "runai")
KINDS = {"Queue": Queue, "Flavor": Flavor, "TenancyPolicy": TenancyPolicy}


def read(system: System, text: str) -> Imported:
    return READERS[system](documents(text, "in.yaml"))


def sample(system: System) -> str:
    return (SAMPLES / f"{system}.yaml").read_text()


def objects(imported: Imported) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in command.objects(imported)}


def spec(imported: Imported, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = objects(imported)["Queue", queue]["spec"]
    return found


def quota(imported: Imported, queue: str, flavor: str) -> dict[str, Any]:
    return next(each for each in spec(imported, queue)["flavors"] if each["flavor"] == flavor)


def lost(imported: Imported) -> list[str]:
    return [f"{note.source.subject} {note.path}" for note in imported.notes if note.lost]


def tree(imported: Imported) -> Tree:
    """The engine's, by the way that the controller takes. Nothing of it may be unreadable."""
    found = command.objects(imported)
    queues, flavors = ([each for each in found if each["kind"] == kind] for kind in ("Queue", "Flavor"))
    read = settings.read(queues, flavors)
    assert read.problems == ()
    return Tree(read.queues)


def check(imported: Imported, system: System) -> None:
    """What was written is valid by our own validation, the webhook admits it, the engine takes its queues, and both forms say the same."""
    found = command.objects(imported)
    for each in found:
        KINDS[each["kind"]].read(each)
    world = world_of(found)
    refused = [result.last.message for each in found for result in judge(each, world) if not result.allowed]
    assert refused == []
    broken = {problem.reason for problem in tree(imported).problems}
    assert broken <= {"ChildrenDeserveMore"}
    text = command.as_yaml(imported, system)
    assert [each for each in yaml.safe_load_all(text) if each] == found
