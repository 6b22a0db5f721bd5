"""What a status says is a function of the cluster: a new leader writes what the one before it did not."""

from typing import Any

from fairlead.kube import resources
from tests.controller.conftest import NAMESPACE, Bench, Life


async def queue(bench: Bench, name: str, labels: dict[str, str]) -> None:
    spec = {"namespaceSelector": {"matchLabels": labels}}
    body: dict[str, Any] = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
    await bench.client.create(resources.raw(resources.QUEUES), body)


async def test_the_queue_of_a_gang_whose_controller_was_killed_right_after_its_admission(bench: Bench):
    await bench.template("four", 4)
    await queue(bench, "team", {"kubernetes.io/metadata.name": NAMESPACE})
    pods = await bench.gang("alone", 2, template="four")
    await bench.mortal(Life(), lambda: bench.bound(pods))
    assert "queue" not in bench.status("alone")
    async with bench.controller():
        await bench.until(lambda: bench.status("alone").get("phase") == "Running", "its status is written")
        assert bench.status("alone")["queue"] == "team"
