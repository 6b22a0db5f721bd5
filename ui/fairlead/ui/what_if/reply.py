"""The answer to one question, with the cluster or snapshot that it is about read again: the heavy part of `child`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.credentials import CredentialsError
from fairlead.ui.reading.cluster import Cluster
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.serve import answers
from fairlead.ui.what_if import world as worlds
from fairlead.ui.what_if.answer import answer
from fairlead.ui.what_if.question import Question
from fairlead.ui.what_if.world import World
from fairlead.ui.what_if.written import as_json, shown

Json = dict[str, Any]


def reply(asked: Json, submit: list[Json]) -> Json:
    """`submit`: the objects of the question's manifests. JSON is a text already, so that the server need not write megabytes."""
    question = Question(**asked["question"] | {"drivers": tuple(asked["question"]["drivers"]), "submit": submit})
    try:
        world = _world(asked["where"], question)
        found = answer(question, world)
    except ChangeError as error:
        return {"error": str(error), "kind": "change"}
    except (NotReadError, CredentialsError, errors.ApiError, OSError) as error:
        return {"error": str(error), "kind": "cluster"}
    return {"json": answers.as_json(as_json(found, world.now)), "shown": asdict(shown(found))}


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
