"""A cluster of a release: its kubelets, what its scheduler writes and takes, and that an unknown release is refused."""

from __future__ import annotations

import pytest

from fairlead.api import names
from fairlead.kube.releases import TRIED, Minor
from fairlead.kube.resources import NODES, PODS, RESOURCE_CLAIMS, VALIDATING_POLICY_BINDINGS, raw
from fairlead.sandbox.cluster import NodeSpec
from fairlead.sandbox.objects import node_name_of
from fairlead.sandbox.release import as_release, chosen
from fairlead.sandbox.scheduler import pools
from tests.support.kubernetes import EVERY
from tests.support.sandbox import View, cluster, pod, template, until

NODE = {"metadata": {"name": "n1", "labels": {}}, "spec": {}, "status": {}}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("release", EVERY)
async def test_what_the_stock_scheduler_writes_for_a_pod_with_a_claim(release: Minor) -> None:
    """1.34 and 1.35 set no time; 1.34 nominates no node before it binds. As seen on 1.34.9, 1.35.6 and 1.36.3."""
    writes: list[str] = []
    async with cluster(NodeSpec("gpu", "l40s"), run_programs=False, release=release) as made, made.client() as client:
        await client.delete(VALIDATING_POLICY_BINDINGS, "fairlead-allocation-fence")
        found = await client.get(raw(NODES), "gpu")
        assert found["status"]["nodeInfo"]["kubeletVersion"] == f"v{TRIED[release]}"
        made.server.state.on_completed = lambda done: writes.append(
            f"{done.user.name} {done.verb} {done.resource}/{done.subresource}"
        )
        await made.apply([template("one")])
        await client.create(PODS, pod("p", claim="one", command=("sleep", "infinity")))
        view = View(client)

        async def bound() -> bool:
            return bool(node_name_of(await view.pod("p")))

        await until(bound)
        (claim,) = await view.all(RESOURCE_CLAIMS)
        assert ("allocationTimestamp" in claim["status"]["allocation"]) is (release >= (1, 36))
        assert ("system:kube-scheduler patch pods/status" in writes) is (release >= (1, 35))


@pytest.mark.parametrize(("incomplete", "offered"), [(True, ["gpu-0"]), (False, [])])
def test_only_1_34_takes_devices_of_a_pool_of_which_slices_are_missing(incomplete: bool, offered: list[str]) -> None:
    """As seen on 1.34.9, 1.35.6 and 1.36.3."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": names.DRIVER, "pool": pool, "nodeName": "n1", "devices": [{"name": "gpu-0"}]}
    (found,) = pools.gather([{"metadata": {"name": "s"}, "spec": spec}], NODE, incomplete=incomplete)
    assert [each.key[2] for each in found.candidates] == offered
    assert not found.complete
    assert [as_release(each).has("incomplete-pools-unused") for each in TRIED] == [False, True, True]


@pytest.mark.parametrize("text", ["1.33", "1.40", "abc", ""])
def test_an_unknown_release_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(
        ValueError, match=rf'"{text}": the sandbox is Kubernetes 1\.34, 1\.35, 1\.36; choose one of them'
    ):
        chosen(text)
