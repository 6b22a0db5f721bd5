"""Programs of two versions in one cluster, as they are during an upgrade and after a part of it was undone.

The CRDs and roles are today's, since they are applied first (docs/upgrade.md). Each mix runs gangs from their creation to their end, and in
each direction one leader takes over from the other while a gang runs, one is being evicted and one waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.kube.resources import GANGS, JOBS, PODS
from fairlead.sandbox.cluster import NodeSpec
from fairlead.sandbox.objects import is_true, results_of
from tests.skew.life import VICTIMS, begin, evicted_by, quotas
from tests.support import earlier_version
from tests.support.sandbox import View, gang_of, job, ledger, pod, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EVERYTHING = frozenset({"driver", "webhook", "controller"})


@contextlib.asynccontextmanager
async def mixed(earlier: Collection[str], logs: Path) -> AsyncIterator[tuple[earlier_version.Mixed, View]]:
    """At the end no device was ever in two claims."""
    async with (
        earlier_version.mixed(earlier, NodeSpec("left", "hgx-h100"), logs=logs) as found,
        found.made.client() as client,
        ledger(client) as seen,
    ):
        view = View(client)
        await quotas(found.made, view)
        yield found, view
        assert seen.doubles == []


async def complete(view: View, name: str) -> None:
    async def reached() -> bool:
        found = await view.get(JOBS, name)
        return found is not None and is_true(found, "Complete")

    await until(reached, timeout_s=60.0, what=f"job {name} is complete")


async def held(view: View) -> dict[str, list[str]]:
    """The devices of each claim."""
    return {
        each["metadata"]["name"]: sorted(str(result["device"]) for result in results_of(each))
        for each in await view.claims("default")
        if each.get("status", {}).get("allocation")
    }


def test_the_other_version_is_another():
    for module in ("fairlead.controller.app", "fairlead.webhook.app", "fairlead.driver.app", "fairlead.api.names"):
        found = earlier_version.imported_from(module)
        assert not found.is_relative_to(earlier_version.ROOT), found
    text = earlier_version.imported_from("fairlead.api.names").read_text()
    assert names.MOVABLE not in text or earlier_version.commit().startswith("v"), "it knows less than today's"


@pytest.mark.parametrize("program", sorted(EVERYTHING))
async def test_gangs_of_every_form_start_and_end_beside_an_earlier(program, tmp_path):
    async with mixed({program}, tmp_path) as (found, view):
        made = found.made
        owned = job("owned", pod("owned", claim="two", annotations=gang_of("owned")), size=2)
        newer = {names.MOVABLE: "true", names.CHECKPOINT_GRACE: "1s", "fairlead.dev/later": "kept"}
        bare = [pod(f"bare-{n}", claim="two", annotations=gang_of("bare", 2) | newer) for n in range(2)]
        legacy = pod("legacy")
        legacy["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        await made.apply([owned, legacy])
        await complete(view, "owned")
        await view.phase("legacy", "Succeeded", timeout_s=60.0)
        await made.apply(bare)
        for each in bare:
            seen = await view.phase(each["metadata"]["name"], "Succeeded", timeout_s=60.0)
            assert seen["metadata"]["annotations"].items() >= newer.items(), "what a version does not know is kept"
        await view.no_claims()


@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "downgrade"])
async def test_a_leader_of_the_other_version_goes_on_where_this_one_stopped(upgrade, tmp_path):
    async with mixed(EVERYTHING if upgrade else frozenset(), tmp_path) as (found, view):
        made = found.made
        await begin(made, view)
        before = await held(view)
        assert made.controller is not None
        await made.controller.stop()
        await found.start("controller", earlier=not upgrade)

        await view.phase("rush", "Running", timeout_s=60.0)
        after = await held(view)
        kept = [name for name in before if name.startswith(("stays", "legacy"))]
        assert len(kept) == 2
        assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}, (
            "what runs keeps its devices"
        )
        assert [name for name in after if name.startswith(VICTIMS)] == []
        past = await view.get(GANGS, "victim")
        assert past is not None
        assert evicted_by(past)

        # The webhook next; then all that waits ends.
        assert made.webhook is not None
        await made.webhook.stop()
        await found.start("webhook", earlier=not upgrade)
        await view.client.delete(JOBS, "stays", "default", propagation="Background")
        for name in ("legacy", "rush"):
            await view.client.delete(PODS, name, "default")
        await view.phase("waits", "Succeeded", timeout_s=60.0)
        await view.no_claims()
