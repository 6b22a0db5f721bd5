"""A process that answers one question and ends: `python -m fairlead.ui.what_if.child`, the question on its standard input, both as JSON.

It reads the cluster itself, so the program that started it may kill it at any time, and what it takes of memory is gone with it. It is nicer than
the server, and the kernel ends it beyond `CPU_S`. The answer is `{"json": …, "shown": …}` or `{"error": …, "kind": "change" | "cluster"}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.ui.reading.cluster import Cluster
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.what_if import world as worlds
from fairlead.ui.what_if.answer import answer
from fairlead.ui.what_if.question import Question
from fairlead.ui.what_if.world import World
from fairlead.ui.what_if.written import as_json, shown

NICE = 10
CPU_S = 90
OOM_SCORE = Path("/proc/self/oom_score_adj")
Json = dict[str, Any]


def main() -> None:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with contextlib.suppress(OSError):
        OOM_SCORE.write_text("1000", encoding="ascii")  # where memory runs out, this ends and not the server
    gc.disable()  # of what is read nothing becomes free
    asked: Json = json.load(sys.stdin)
    if asked.get("memory_bytes"):  # where a container has none left, the kernel ends all of it
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_bytes"], asked["memory_bytes"]))
    json.dump(_answer(asked), sys.stdout)


def _answer(asked: Json) -> Json:
    question = Question(**asked["question"] | {"drivers": tuple(asked["question"]["drivers"])})
    try:
        world = _world(asked["where"], question)
        found = answer(question, world)
    except ChangeError as error:
        return {"error": str(error), "kind": "change"}
    except (NotReadError, CredentialsError, errors.ApiError, OSError) as error:
        return {"error": str(error), "kind": "cluster"}
    return {"json": as_json(found, world.now), "shown": asdict(shown(found))}


def _world(where: Json, question: Question) -> World:
    if where.get("snapshot"):
        return worlds.of_file(Path(where["snapshot"]))

    async def read() -> World:
        kubeconfig = Path(where["kubeconfig"]) if where.get("kubeconfig") else None
        async with Client.connect(kubeconfig, context=where.get("context"), user_agent="fairlead-ui") as client:
            cluster = Cluster(client)
            await cluster.list(
                resources.QUEUES
            )  # a cluster that is away is said at once: the lists that follow are tried for minutes
            return await worlds.of_cluster(cluster, question)

    return asyncio.run(read())


if __name__ == "__main__":
    main()
