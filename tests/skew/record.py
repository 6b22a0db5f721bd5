"""Writes tests/skew/data/objects.json: what the programs of an earlier version left in a cluster, for tests without its history.

    python -m tests.skew.record

A gang runs, one is about to be evicted for one that waits, one was evicted, a pod has a legacy limit: each annotation, condition and status
that a program writes for another, or for itself after a restart, is in it. Keys and tokens are left out.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import GANGS, PODS, QUEUES, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import NodeSpec
from tests.skew.life import begin, quotas
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
                return victim is not None and names.EVICTED in victim["metadata"].get("annotations", {})

            await until(evicted, what="the eviction is past")
            victim = await view.get(GANGS, "victim")
            assert victim is not None
            objects["gangs"] = [each for each in objects["gangs"] if each["metadata"]["name"] != "victim"] + [
                _lean(victim)
            ]
    return {"commit": earlier_version.commit(), "objects": objects, "records": records}


def _lean(obj: Json) -> Json:
    obj["metadata"].pop("managedFields", None)
    return obj


def main() -> None:
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(asyncio.run(recorded()), indent=1, sort_keys=True) + "\n")
    print(DATA)


if __name__ == "__main__":
    main()
