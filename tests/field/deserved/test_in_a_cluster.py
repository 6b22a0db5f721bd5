"""The controller on the sandbox: the owner's pods run though the borrower has a pod on a model that no flavor counts."""

from __future__ import annotations

from pathlib import Path

from fairlead.api import names
from fairlead.kube.resources import FLAVORS, QUEUES
from fairlead.sandbox.cluster import NodeSpec
from tests.controller.conftest import benches

MODEL = f'device.attributes["{names.DRIVER}"].productName.contains("%s")'


async def test_what_was_borrowed_is_reclaimed_as_if_the_other_pod_were_not_there(tmp_path: Path):
    async with benches(tmp_path, count=1, more=[NodeSpec("l1", "l40s")]) as bench:
        await bench.client.create(FLAVORS, {"metadata": {"name": "h100"}, "spec": {"deviceSelector": MODEL % "H100"}})
        for name in ("language", "vision"):
            flavors = [{"flavor": "h100", "deserved": 4}]
            await bench.client.create(QUEUES, {"metadata": {"name": name}, "spec": {"flavors": flavors}})
        await bench.template("four", 4, selector=MODEL % "H100")
        await bench.template("one", selector=MODEL % "H100")
        await bench.template("other", selector=MODEL % "L40S")
        language, vision = ({names.QUEUE: name} for name in ("language", "vision"))
        async with bench.controller():
            borrower = [
                await bench.pod(f"b{n}", template="four", gang="b", size=2, annotations=language) for n in range(2)
            ]
            await bench.until(lambda: bench.running(pod.metadata.name for pod in borrower), "all H100s are borrowed")
            await bench.pod("beside", template="other", annotations=language)
            await bench.until(lambda: bench.running(["beside"]), "and an L40S is used")
            owner = [
                (await bench.pod(f"o{n}", template="one", gang="o", size=4, annotations=vision)).metadata.name
                for n in range(4)
            ]
            await bench.until(lambda: bench.running(owner), "the owner has what it deserves")
            assert bench.running(["beside"])
