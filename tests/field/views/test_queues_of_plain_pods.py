"""A gang of one that did not wait has no Gang object: its pod says in which queue it runs, and so does every view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.explanations import pod_explanation, queue_explanation
from fairlead.ui.model.holders import holders
from tests.controller.conftest import NAMESPACE, Bench, benches

pytestmark = pytest.mark.slow


async def pod(bench: Bench, name: str) -> Raw:
    return await bench.client.get(resources.raw(resources.PODS), name, NAMESPACE)


async def test_a_pod_that_names_no_queue_is_shown_in_that_of_its_namespace(tmp_path: Path) -> None:
    async with benches(tmp_path, named=True) as bench:
        queue: dict[str, Any] = {"metadata": {"name": "everyone"}, "spec": {"namespaceSelector": {}}}
        await bench.client.create(resources.QUEUES, queue)
        await bench.template("two", 2)
        async with bench.controller():
            await bench.pod("one", template="two")
            await bench.until(lambda: bench.running(["one"]), "it runs")
            made = await pod(bench, "one")
        assert not bench.gangs.all()
        (line,) = plain_pods.lines([made], [], now=0.0)
        assert (line.phase, line.queue) == ("Running", "everyone")
        (holder,) = holders(bench.allocated(), [made], []).values()
        assert holder.queue == "everyone"
        told = {part.title: part.lines for part in queue_explanation(queue, [], [made], now=0.0).parts}
        assert told["Running"] == (f"{NAMESPACE}/one: 1 of 1 pods, 0s",)
        said = {part.title: part.lines for part in pod_explanation(made, None, now=0.0).parts}
        assert "a gang of one of queue everyone" in said["Fairlead"][0]
