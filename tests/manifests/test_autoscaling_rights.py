"""With the chart's values for autoscaling the controller may make what the modes need: its roles and the policy on its pods, as rendered."""

from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Patch
from fairlead.sandbox.install.apply import Applier
from tests.controller.autoscaling.test_autoscaling_on_the_sandbox import flavor
from tests.controller.conftest import benches


@pytest.mark.slow
async def test_placeholders_are_made_under_the_charts_policy_and_no_other_pod(template, tmp_path: Path):
    found = {
        (each["kind"], each["metadata"]["name"]): each
        for each in template(values={"autoscaling": {"placeholders": True}})
    }

    async with benches(tmp_path, count=1, named=True) as bench:
        policies = [each for (kind, name), each in found.items() if name == "fairlead-placeholders"]
        assert len(policies) == 2
        await Applier(bench.client).apply(policies)
        rules = {"rules": found["Role", "fairlead-controller"]["rules"]}
        await bench.client.patch(
            resources.ROLES, "fairlead-controller", rules, namespace=names.NAMESPACE, kind=Patch.MERGE
        )
        await bench.client.create(resources.PRIORITY_CLASSES, found["PriorityClass", names.PLACEHOLDER_PRIORITY])
        await bench.template("eight", 8)
        await flavor(bench, mode="Placeholder", extendedResource="nvidia.com/gpu")

        def made() -> list[str]:
            return [pod.metadata.name for pod in bench.pods.all() if names.PLACEHOLDER in pod.metadata.labels]

        async with bench.controller():
            await bench.gang("wide", 2, template="eight")
            await bench.until(lambda: len(made()) == 2, "placeholders are made")
        container = {"name": "main", "image": "x"}
        async with bench.cluster.client(names.CONTROLLER_USER) as controller:
            for spec in ({}, {"priorityClassName": names.PLACEHOLDER_PRIORITY}):
                other = {
                    "metadata": {"name": "other", "namespace": names.NAMESPACE},
                    "spec": {"containers": [container], **spec},
                }
                with pytest.raises(errors.Forbidden, match="of pods the Fairlead controller may make only"):
                    await controller.create(resources.PODS, other)
