"""Facts by watches: what they add up to is what lists say, after any change; a cluster that goes away is said, and comes back."""

import copy
import random

import msgspec
import pytest

from fairlead.kube.resources import Raw
from fairlead.ui.model import cluster as clusters
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_list import LineMemory
from fairlead.ui.reading.cluster import NotReadError
from fairlead.ui.reading.watched import NEWER_S, OLDER_S, RECONNECT, WatchedSource
from tests.support import ui
from tests.support.kube import VirtualTime, settle


def same(found: Facts, listed: Facts, memory: clusters.Memory | None = None) -> None:
    """In all that a page reads. `memory`: of the picture before."""
    assert found.hardware is not None
    assert listed.hardware is not None
    assert clusters.cluster(found.hardware, memory) == clusters.cluster(listed.hardware)
    assert dict(found.hardware.holders) == dict(listed.hardware.holders)
    assert LineMemory().of(found).every == LineMemory().of(listed).every
    assert names(found.pods) == names(listed.pods)
    assert [raw["metadata"]["name"] for raw in found.queues] == [raw["metadata"]["name"] for raw in listed.queues]
    assert found.refused == listed.refused


def names(raws: tuple[Raw, ...]) -> list[tuple[str, str]]:
    return [(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in raws]


async def listed(apiserver: ui.Apiserver, time: VirtualTime) -> Facts:
    times = ui.Times()
    times.now = time.now
    return await ui.source(apiserver, times).facts()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
async def test_after_any_changes_watches_say_what_lists_say(seed):
    draw = random.Random(seed)
    apiserver, time = ui.Apiserver(ui.a_cluster(10, waiting=6)), VirtualTime(ui.NOW)
    gone: list[tuple[str, Raw]] = []
    memory = clusters.Memory()
    async with ui.watched(apiserver, time) as source:
        await source.facts()
        for _ in range(12):
            for _ in range(draw.randrange(1, 8)):
                change(apiserver, draw, gone)
            await time.advance(NEWER_S)
            same(await source.facts(), await listed(apiserver, time), memory)


def change(apiserver: ui.Apiserver, draw: random.Random, gone: list[tuple[str, Raw]]) -> None:
    plural = draw.choice(["gangs", "pods", "resourceclaims", "resourceclaims", "nodes", "resourceslices", "queues"])
    kind = draw.randrange(4)
    if kind == 0 and gone:
        apiserver.put(*gone.pop(draw.randrange(len(gone))))
        return
    if not apiserver.lists[plural]:
        return
    raw = copy.deepcopy(draw.choice(apiserver.lists[plural]))
    if kind == 1:
        apiserver.delete(plural, raw)
        gone.append((plural, raw))
        return
    status = raw.setdefault("status", {})
    match plural:
        case "gangs":
            status |= {
                "queue": f"queue-{draw.randrange(5)}",
                "reservedNodes": [f"node-{draw.randrange(10):03}"][: draw.randrange(2)],
            }
        case "pods":
            status["phase"] = draw.choice(["Pending", "Running", "Succeeded"])
        case "resourceclaims" if draw.random() < 0.5:
            status.pop("allocation", None)
            status["reservedFor"] = []
        case "resourceclaims":
            status["devices"] = []
        case "nodes":
            raw["spec"]["unschedulable"] = draw.random() < 0.5
        case "resourceslices":
            raw["spec"]["devices"] = raw["spec"].get("devices", [])[: draw.randrange(1, 9)]
    apiserver.put(plural, raw)


async def test_a_node_of_which_nothing_changed_is_not_drawn_again():
    apiserver, time, memory = ui.Apiserver(ui.a_cluster(12)), VirtualTime(ui.NOW), clusters.Memory()
    async with ui.watched(apiserver, time) as source:

        async def drawn() -> list[str]:
            await time.advance(NEWER_S)
            hardware = (await source.facts()).hardware
            assert hardware is not None
            before = {node.name: node for node in picture.nodes} if picture is not None else {}
            found.append(clusters.cluster(hardware, memory))
            return [node.name for node in found[-1].nodes if before.get(node.name) is not node]

        found: list[clusters.ClusterView] = []
        picture = None
        assert len(await drawn()) == 12
        for plural, raw, where in (
            ("pods", _with(apiserver, "pods", "run-0-0", phase="Succeeded"), ["node-000"]),
            ("gangs", ui.gang("run-1", "team-1", phase="Running", queue="queue-4"), ["node-001"]),
            ("gangs", ui.gang("wait-00000", "team-0", reservedNodes=["node-005"]), ["node-005"]),
            ("gangs", ui.gang("wait-00000", "team-0", reservedNodes=["node-006"]), ["node-005", "node-006"]),
            ("gangs", ui.gang("wait-00001", "team-1", message="other"), []),
            ("nodes", ui.node("node-007", ready=False), ["node-007"]),
        ):
            picture = found[-1]
            apiserver.put(plural, raw)
            assert await drawn() == where, (plural, where)


def _with(apiserver: ui.Apiserver, plural: str, name: str, **status: str) -> Raw:
    raw = next(each for each in apiserver.lists[plural] if each["metadata"]["name"] == name)
    return {**raw, "status": {**raw["status"], **status}}


async def test_facts_are_the_same_object_while_nothing_changes_and_made_once_a_second_at_most():
    apiserver, time = ui.Apiserver(ui.a_cluster()), VirtualTime(ui.NOW)
    async with ui.watched(apiserver, time) as source:
        first = await source.facts()
        await time.advance(NEWER_S)
        assert await source.facts() is first
        apiserver.put("gangs", ui.gang("new", "team-0"))
        await time.advance(NEWER_S)
        second = await source.facts()
        assert ("team-0", "new") in names(second.gangs)
        apiserver.put("gangs", ui.gang("newer", "team-0"))
        await time.advance(NEWER_S / 2)
        assert await source.facts() is second
        assert second.pods is first.pods, "what did not change is not made again"
        await time.advance(OLDER_S)
        await source.facts()
        await time.advance(OLDER_S)
        assert (await source.facts()).at == time.now, "ages go on"
    asked = apiserver.asked
    assert asked == 8, "one list of each kind, and of events"


async def test_a_cluster_that_is_away_for_a_minute_is_said_and_seen_again():
    apiserver, time = ui.Apiserver(ui.a_cluster()), VirtualTime(ui.NOW)
    async with ui.watched(apiserver, time) as source:
        before = await source.facts()
        await time.advance(10)
        assert (await source.facts()).late == ""
        apiserver.go()
        apiserver.lists["gangs"].clear()
        await time.advance(60)
        facts = await source.facts()
        assert "the cluster does not answer: connection refused" in facts.late
        assert "this is as of 2027-01-15T08:00:1" in facts.late
        assert facts.gangs == before.gangs
        apiserver.away = False
        apiserver.put("gangs", ui.gang("new", "team-0"))
        await time.advance(2 * RECONNECT.max_s + 2)
        facts = await source.facts()
        assert facts.late == ""
        assert facts.at == time.now


async def test_a_kind_that_may_not_be_listed_is_missing_until_it_may():
    apiserver, time = ui.Apiserver(ui.a_cluster(), refused=("queues", "nodes")), VirtualTime(ui.NOW)
    async with ui.watched(apiserver, time) as source:
        facts = await source.facts()
        assert set(facts.refused) == {"queues", "nodes"}
        assert "you may not list queues.fairlead.dev" in facts.refused["queues"]
        assert facts.hardware is None
        assert facts.gangs
        apiserver.refused.clear()
        await time.advance(2 * RECONNECT.max_s)
        facts = await source.facts()
        assert not facts.refused
        assert facts.hardware is not None
        assert facts.queues


async def test_a_cluster_that_was_never_read_is_an_error_that_says_why():
    apiserver, time = ui.Apiserver(ui.a_cluster()), VirtualTime(ui.NOW)
    apiserver.away = True
    async with ui.watched(apiserver, time) as source:
        with pytest.raises(NotReadError, match="does not answer: connection refused"):
            await source.facts()
        apiserver.away = False
        await time.advance(2 * RECONNECT.max_s)
        assert (await source.facts()).gangs


async def test_events_of_a_gang_are_watched():
    lists = ui.a_cluster()
    gang = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    lists["events"] = [ui.event(gang, "NoDevices", "8 wanted")]
    apiserver = ui.Apiserver(lists)
    async with ui.watched(apiserver) as source:
        assert [raw["reason"] for raw in await source.events("Gang", "team-0", "wait-00000")] == ["NoDevices"]
        apiserver.put("events", ui.event(gang, "Forecast", "in ten minutes"))
        await settle()
        assert len(await source.events("Gang", "team-0", "wait-00000")) == 2
        assert await source.events("Gang", "team-1", "wait-00000") == ()


async def test_of_a_pod_that_no_page_names_only_its_use_of_a_node_is_kept():
    lists = ui.a_cluster(2)
    whole = {
        "metadata": {"name": "web", "namespace": "shop", "annotations": {"a": "b" * 1000}},
        "spec": {"nodeName": "node-000", "containers": [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]},
        "status": {"phase": "Running"},
    }
    lists["pods"].append(whole)
    apiserver = ui.Apiserver(lists)
    async with ui.watched(apiserver) as source:
        facts = await source.facts()
        assert ("shop", "web") not in names(facts.pods)
        assert facts.hardware is not None
        info = facts.hardware.nodes.get("node-000")
        assert info is not None
        assert info.used["cpu"] >= 60_000
        assert all("containers" not in pod["spec"] for pod in facts.pods)
        assert kept(source) < len(msgspec.json.encode(whole)) / 5


def kept(source: WatchedSource) -> int:
    return len(msgspec.json.encode(source._pods._informer.get("shop/web")))
