"""Writes tests/skew/data/objects.json: what the programs of an earlier version left in a cluster, for tests without its history.

    python -m tests.skew.record

Two gangs run, one is about to be evicted for one that waits, one of them with a legacy limit: each annotation, condition and status
that a program writes for another, or for itself after a restart, is in it. The schemas of its
CRDs are in it, without descriptions. No key or token is.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from fairlead.api import names
from fairlead.kube.resources import GANGS, PODS, QUEUES, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import NodeSpec
from tests.skew.life import begin, evicted_by, quotas
from tests.support import earlier_version
from tests.support.sandbox import View, until

DATA = Path(__file__).parent / "data" / "objects.json"
Json = dict[str, Any]


async def recorded() -> Json:
    with tempfile.TemporaryDirectory(prefix="fl-") as logs:
        async with (
            earlier_version.mixed(
                frozenset({"driver", "webhook", "controller"}), NodeSpec("left", "hgx-h100"), logs=Path(logs)
            ) as found,
            found.made.client() as client,
        ):
            view = View(client)
            await quotas(found.made, view)
            await begin(found.made, view)
            objects = {
                each.plural: [_lean(one) for one in await view.all(each)]
                for each in (PODS, RESOURCE_CLAIMS, GANGS, QUEUES)
            }
            node = found.made.nodes["left"].plugins_dir / names.DRIVER
            records = {
                path.name: path.read_text()
                for path in sorted(node.rglob("*.json"))
                if path.read_text().startswith('{"schema"')
            }

            async def evicted() -> bool:
                victim = await view.get(GANGS, "victim")
                return victim is not None and evicted_by(victim)

            await until(evicted, what="the eviction is past")
            victim = await view.get(GANGS, "victim")
            assert victim is not None
            objects["gangs"] = [each for each in objects["gangs"] if each["metadata"]["name"] != "victim"] + [
                _lean(victim)
            ]
    return {"commit": earlier_version.commit(), "crds": _schemas(), "objects": objects, "records": records}


def _schemas() -> Json:
    """By kind and version."""
    found: Json = {}
    for text in earlier_version.files("manifests/crds/fairlead.dev_*.yaml"):
        spec = yaml.safe_load(text)["spec"]
        versions = {each["name"]: _plain(each["schema"]["openAPIV3Schema"]) for each in spec["versions"]}
        found[spec["names"]["kind"]] = versions
    return found


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "description" or isinstance(value, dict)}
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def _lean(obj: Json) -> Json:
    obj["metadata"].pop("managedFields", None)
    return obj


def _text(document: Json) -> str:
    """JSON with a line for each object, so that a change of one is a change of a line."""
    objects = {plural: "[\n" + ",\n".join(map(_line, found)) + "\n]" for plural, found in document["objects"].items()}
    parts = {key: _line(value) for key, value in document.items() if key != "objects"}
    for name in ("crds", "records"):
        parts[name] = _lines({key: _line(value) for key, value in document[name].items()})
    return _lines(parts | {"objects": _lines(objects)}) + "\n"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _lines(parts: dict[str, str]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in sorted(parts.items())) + "\n}"


def main() -> None:
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(_text(asyncio.run(recorded())))
    print(DATA)


if __name__ == "__main__":
    main()
