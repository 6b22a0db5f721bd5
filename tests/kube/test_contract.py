"""The client, the informer and the lease against an apiserver with all of Kubernetes' rules: the sandbox's, over TLS.

Where KUBEBUILDER_ASSETS or a cluster is at hand the same calls are made by e2e. Here also: what a broken connection, an
apiserver that is away, and a compacted history do to an informer that follows a resource for a while.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Informer
from fairlead.kube.limits import Backoff
from fairlead.kube.resources import CONFIG_MAPS, NAMESPACES, NODES
from fairlead.sandbox.apiserver.faults import Fault
from fairlead.sandbox.apiserver.server import ApiServer

QUICK = Backoff(base_s=0.02, max_s=0.2)


@pytest.fixture
async def apiserver(tmp_path: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer(workdir=tmp_path, random=Random(1), history_limit=200)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    kubeconfig = tmp_path / "admin.yaml"
    kubeconfig.write_text(apiserver.kubeconfig("admin", groups=("system:masters",)))
    async with Client.connect(kubeconfig) as connected:
        await connected.create(NAMESPACES, {"metadata": {"name": "ml"}})
        yield connected


def config(name: str, **data: str):
    return {"metadata": {"name": name, "namespace": "ml"}, "data": data}


async def test_objects_are_made_read_changed_and_deleted(client: Client):
    made = await client.create(CONFIG_MAPS, config("a", x="1"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAPS, config("a"))
    changed = await client.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, namespace="ml")
    assert changed["data"] == {"x": "1", "y": "2"}
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAPS, made | {"data": {}})
    replaced = await client.replace(CONFIG_MAPS, changed | {"data": {"z": "3"}})
    assert replaced["data"] == {"z": "3"}
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", "ml", uid="another")
    await client.delete(CONFIG_MAPS, "a", "ml", uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", "ml")


async def test_server_side_apply_owns_fields_and_yields_only_by_force(client: Client):
    await client.patch(CONFIG_MAPS, "a", config("a", x="1"), namespace="ml", kind=Patch.APPLY, field_manager="one")
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIG_MAPS, "a", config("a", x="2"), namespace="ml", kind=Patch.APPLY, field_manager="two")
    taken = await client.patch(
        CONFIG_MAPS, "a", config("a", x="2"), namespace="ml", kind=Patch.APPLY, field_manager="two", force=True
    )
    assert taken["data"] == {"x": "2"}


async def test_a_list_in_many_pages_is_whole_and_one_that_expires_midway_too(client: Client, apiserver: ApiServer):
    for number in range(12):
        await client.create(CONFIG_MAPS, config(f"c{number:02}"))
    listing = await client.list(CONFIG_MAPS, "ml", page=5)
    names = [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"].startswith("c")]
    assert names == [f"c{number:02}" for number in range(12)]
    apiserver.faults.add(Fault(verb="list", resource="configmaps", count=1, delay_s=0.0))  # the first page passes
    apiserver.faults.fail(410, verb="list", resource="configmaps", reason="Expired")
    again = await client.list(CONFIG_MAPS, "ml", page=5)
    assert {item["metadata"]["name"] for item in again.items} >= set(names)


async def test_a_forbidden_request_names_user_verb_and_resource(apiserver: ApiServer, client: Client, tmp_path: Path):
    path = tmp_path / "nobody.yaml"
    path.write_text(apiserver.kubeconfig("nobody"))
    async with Client.connect(path) as nobody:
        with pytest.raises(errors.Forbidden, match=r'User "nobody" cannot list resource "nodes"'):
            await nobody.list(NODES)


@contextlib.asynccontextmanager
async def following(client: Client) -> AsyncIterator[Informer[resources.Raw]]:
    informer = Informer(client, CONFIG_MAPS, namespace="ml", backoff=QUICK)
    task = asyncio.create_task(informer.run())
    await asyncio.wait_for(informer.synced.wait(), 10)
    yield informer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def versions(items) -> dict[str, str]:
    """Items of a list carry no kind, those of a watch do: what they are is compared by name and version."""
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


async def same(informer: Informer[resources.Raw], client: Client) -> None:
    """The copy becomes equal to what the apiserver lists."""
    listed = versions((await client.list(CONFIG_MAPS, "ml")).items)
    async with asyncio.timeout(10):
        while versions(informer.all()) != listed:  # noqa: ASYNC110 - what is awaited is a state, not an event
            await asyncio.sleep(0.01)


async def test_a_copy_stays_equal_through_every_fault(client: Client, apiserver: ApiServer):
    """Random changes and random faults; at the end, and at each rest, copy and list are the same."""
    dice = Random(20261121)
    seen: dict[str, str] = {}
    async with following(client) as informer:

        def note(change) -> None:
            if change.new is None:
                assert seen.pop(change.key) is not None
            else:
                assert (change.old is None) == (change.key not in seen)
                seen[change.key] = change.new["metadata"]["resourceVersion"]

        informer.subscribe(note)
        for step in range(150):
            name = f"c{dice.randrange(8)}"
            match dice.randrange(9):
                case 0 | 1 | 2:
                    with contextlib.suppress(errors.AlreadyExists):
                        await client.create(CONFIG_MAPS, config(name, step=str(step)))
                case 3 | 4:
                    with contextlib.suppress(errors.NotFound):
                        informer.note(
                            await client.patch(CONFIG_MAPS, name, {"data": {"step": str(step)}}, namespace="ml")
                        )
                case 5:
                    with contextlib.suppress(errors.NotFound):
                        await client.delete(CONFIG_MAPS, name, "ml")
                case 6:
                    apiserver.faults.close_watches("configmaps")
                case 7:
                    apiserver.faults.fail(
                        dice.choice([410, 429, 500]), verb=dice.choice(["watch", "list"]), resource="configmaps"
                    )
                    apiserver.faults.close_watches("configmaps")
                case _:
                    apiserver.faults.clear()
                    await same(informer, client)
        apiserver.faults.clear()
        await same(informer, client)
        assert set(seen) == {f"ml/{item['metadata']['name']}" for item in informer.all()}


async def test_a_copy_catches_up_after_the_apiserver_was_down_and_lost_its_history(
    client: Client, apiserver: ApiServer
):
    async with following(client) as informer:
        await client.create(CONFIG_MAPS, config("before"))
        await same(informer, client)
        away = apiserver.faults.add(Fault(verb="watch", resource="configmaps", drop=True, count=None))
        apiserver.faults.close_watches("configmaps")
        await client.delete(CONFIG_MAPS, "before", "ml")
        for number in range(250):  # more than the history keeps
            await client.patch(NAMESPACES, "ml", {"metadata": {"annotations": {"n": str(number)}}})
        await client.create(CONFIG_MAPS, config("after"))
        apiserver.faults.remove(away)
        await same(informer, client)
        assert "ml/before" not in informer


def served_resources() -> list[resources.Resource[Any]]:
    """Every resource that the programs read and a cluster serves without CRDs, typed and as dicts."""
    named = [value for value in vars(resources).values() if isinstance(value, resources.Resource)]
    apart = {
        "DeviceTaintRule", "EndpointSlice", "ProvisioningRequest",  # a CRD, or served by no sandbox
        "SelfSubjectReview", "SelfSubjectAccessReview",  # only created
    }  # fmt: skip
    built_in = [one for one in named if one.group != resources.QUEUES.group and one.kind not in apart]
    return built_in + [resources.raw(one) for one in built_in if one.type is not dict]


async def test_real_bookmarks_move_every_informer_forward_and_end_no_watch(client: Client, apiserver: ApiServer):
    apiserver.state.bookmark_interval_s = 0.05
    informers = [Informer(client, resource, backoff=QUICK) for resource in served_resources()]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        async with asyncio.timeout(20):
            for informer in informers:
                await informer.synced.wait()
            made = await client.create(CONFIG_MAPS, config("later"))
            wanted = int(made["metadata"]["resourceVersion"])
            while any(int(informer.resource_version) < wanted for informer in informers):
                assert [str(informer.resource) for informer in informers if informer.failures] == []
                await asyncio.sleep(0.01)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
