"""The map of the cluster: which state each GPU is in, what holds it, and where its MIG devices lie."""

import pytest

from fairlead.api.drivers import AMD, EXAMPLE, INTEL, NVIDIA
from fairlead.api.repair import DRAIN_TAINT, TAINT
from fairlead.kube.device_usage import DeviceUsage
from fairlead.ui.model.cluster import Memory, cluster
from fairlead.ui.pages.pictures import node_map, summary
from tests.support import published, ui
from tests.support.engine.objects import gpu, mig_gpu, slice_of


async def seen(lists):
    facts = await ui.facts(lists)
    assert facts.hardware is not None
    return cluster(facts.hardware)


def one_node(*devices, counters=(), **node):
    lists = ui.empty()
    lists["nodes"] = [ui.node("n", **node)]
    lists["resourceslices"] = slice_of("n", list(devices), counters=counters)
    return lists


def held(lists, *devices, phase="Running", idle=False, name="a", queue="q"):
    ui.hold(lists, name, 0, "n", list(devices), phase=phase, idle=idle)
    lists["gangs"][-1]["status"]["queue"] = queue
    return lists


def states(view):
    return {gpu.name: gpu.state for node in view.nodes for gpu in node.gpus}


async def test_a_gpu_that_no_claim_holds_is_free_and_one_that_a_running_gang_holds_is_held():
    view = await seen(held(one_node(gpu(0), gpu(1)), "gpu-1"))
    assert states(view) == {"gpu-0": "free", "gpu-1": "held"}
    (hold,) = view.nodes[0].gpus[1].holds
    assert (hold.gang, hold.queue, hold.claim) == ("team-0/a", "q", "team-0/a-0-gpu")
    assert (view.gpus, view.counts["held"], view.queues) == (2, 1, ("q",))


@pytest.mark.parametrize(
    ("how", "state"), [({"idle": True}, "idle"), ({"phase": "Pending"}, "starting"), ({}, "held")], ids=str
)
async def test_what_a_claim_does_with_its_gpu(how, state):
    assert states(await seen(held(one_node(gpu(0)), "gpu-0", **how))) == {"gpu-0": state}


async def test_the_load_that_the_driver_wrote_is_told_of_each_held_gpu():
    lists = held(held(one_node(gpu(0), gpu(1), gpu(2)), "gpu-0"), "gpu-1", name="b", idle=True)
    view = await seen(lists)
    assert [[hold.utilization_percent for hold in each.holds] for each in view.nodes[0].gpus] == [[90], [0], []]
    drawn = node_map(view.nodes[0], {}, cell=16)
    assert "load 90 %" in drawn.cells[0].title


async def test_each_share_of_a_gpu_says_what_its_claim_has_uses_and_is_held_to():
    lists = held(held(one_node(gpu(0, allowMultipleAllocations=True)), "gpu-0"), "gpu-0", name="b")
    for claim, used, limit in zip(lists["resourceclaims"], (3, 7), (20, None), strict=True):
        usage = DeviceUsage(
            state="Busy", since_s=ui.NOW - 60, sampled_at_s=ui.NOW - 10, utilization_percent=90, shared=True,
            memory_used_bytes=used * 2**30, memory_bytes=20 * 2**30, memory_limit_bytes=limit and limit * 2**30,
            multiprocessors_limit=limit and 33,
        )  # fmt: skip
        share = {"shareID": claim["metadata"]["uid"]}
        claim["status"]["allocation"]["devices"]["results"][0] |= share | {"consumedCapacity": {"memory": "20Gi"}}
        claim["status"]["devices"][0] |= share | {"data": usage.to_json()}
    view = await seen(lists)
    said = {hold.gang: hold.share for hold in view.nodes[0].gpus[0].holds}
    assert said == {
        "team-0/a": "3.0 GiB of a share of 20.0 GiB, each program at most 20.0 GiB and 33 multiprocessors by MPS",
        "team-0/b": "7.0 GiB of a share of 20.0 GiB, held to it by nothing",
    }
    assert said["team-0/a"] in node_map(view.nodes[0], {}, cell=16).cells[0].title


@pytest.mark.parametrize(
    ("lists", "note"),
    [
        (one_node(gpu(0), ready=False), "not ready"),
        (one_node(gpu(0, taints=[{"key": "x/xid", "effect": "NoExecute"}])), "tainted: x/xid"),
        (one_node(gpu(0, taints=[{"key": DRAIN_TAINT, "effect": "NoSchedule"}])), "drained; see fairlead device list"),
        (
            one_node(gpu(0, taints=[{"key": TAINT, "value": "drained", "effect": "NoSchedule"}])),
            "drained; see fairlead device list",
        ),
        (
            one_node(gpu(0, taints=[{"key": TAINT, "value": "resetting", "effect": "NoSchedule"}])),
            f"tainted: {TAINT}=resetting",
        ),
        ({**one_node(gpu(0)), "nodes": []}, "does not exist"),
    ],
    ids=["node", "taint", "drained by a rule", "drained by the driver", "repaired", "gone"],
)
async def test_a_gpu_on_which_nothing_is_placed_is_broken_and_says_why(lists, note):
    (found,) = (await seen(lists)).nodes[0].gpus
    assert found.state == ("drained" if note.startswith("drained") else "broken")
    assert note in found.note


async def test_the_node_of_a_gang_for_which_it_is_kept_free_is_nominated():
    lists = one_node(gpu(0))
    lists["gangs"] = [ui.gang("big", "ml", reservedNodes=["n"])]
    (found,) = (await seen(lists)).nodes[0].gpus
    assert (found.state, found.kept_for) == ("nominated", "ml/big")


async def test_a_free_gpu_whose_node_has_no_room_for_a_usual_pod_is_fragmented_and_counts_as_free():
    lists = one_node(*(gpu(at) for at in range(10)))
    lists["deviceclasses"] = [{"metadata": {"name": "gpu.fairlead.dev"}, "spec": {}}]
    held(lists, *(f"gpu-{at}" for at in range(8)))
    assert states(await seen(lists))["gpu-9"] == "free"
    lists["nodes"][0]["status"]["allocatable"]["cpu"] = "33"
    view = await seen(lists)
    assert states(view)["gpu-9"] == "fragmented"
    assert (view.nodes[0].free, summary(view.nodes[0])) == (2, "n: 10 GPUs, 8 held, 2 free (2 fragmented)")


async def test_mig_devices_lie_inside_their_gpu_where_their_memory_slices_are():
    devices, counters = mig_gpu(0)
    view = await seen(held(one_node(*devices, counters=[counters]), "gpu-0-mig-3g-40gb-4", "gpu-0-mig-1g-10gb-1"))
    (found,) = view.nodes[0].gpus
    assert [(part.profile, part.start, part.size, part.state) for part in found.parts] == [
        ("1g.10gb", 1, 1, "held"),
        ("3g.40gb", 4, 4, "held"),
    ]
    assert (found.state, found.rest, found.slices) == ("held", "free", 8)


async def test_mig_devices_that_an_administrator_cut_are_shown_also_while_free():
    def cut(minor, start):
        capacity = {"memory": {"value": "10Gi"}, f"memorySlice{start}": {"value": "1"}}
        attributes = {
            "type": {"string": "mig"},
            "parentUUID": {"string": "GPU-x"},
            "parentIndex": {"int": minor},
            "profile": {"string": "1g.10gb"},
        }
        return {"name": f"gpu-{minor}-mig-1g10gb-19-{start}", "attributes": attributes, "capacity": capacity}

    view = await seen(held(one_node(cut(3, 0), cut(3, 1)), "gpu-3-mig-1g10gb-19-1"))
    (found,) = view.nodes[0].gpus
    assert (found.name, [(part.start, part.state) for part in found.parts]) == ("gpu-3", [(0, "free"), (1, "held")])


async def test_parts_of_other_drivers_gpus_lie_inside_their_gpu_too():
    """AMD names the parent by its PCI address, the example driver by the UUID that the whole GPU has too."""
    lists = one_node()
    whole, counters = published.example_gpu(0, partitions=2)
    lists["resourceslices"] = [
        *slice_of("n", [published.amd_partition(9 + at, 1, "dpx_nps1") for at in range(2)], driver=AMD),
        *slice_of("n", whole, counters=counters, driver=EXAMPLE),
        *slice_of("n", [published.intel_gpu(3)], driver=INTEL),
        *slice_of("n", [published.nvidia_gpu(at, partition2=4, partition4=2) for at in range(2)], driver=NVIDIA),
    ]
    (node,) = (await seen(lists)).nodes
    found = {gpu.name: (gpu.product, gpu.island, [part.profile for part in gpu.parts]) for gpu in node.gpus}
    assert found == {
        "0000:01:00.0": (published.AMD_PRODUCT, "", ["dpx_nps1", "dpx_nps1"]),
        "gpu-0-full": ("LATEST-GPU-MODEL", "", []),
        "0000-03-00-0-0x0bd5": ("Max 1550", "", []),
        "gpu-0": ("NVIDIA H100 80GB HBM3", "2", []),
        "gpu-1": ("NVIDIA H100 80GB HBM3", "2", []),
    }


async def test_islands_are_outlined_and_gpus_stand_in_their_order():
    view = await seen(one_node(*(gpu(at, island=at % 2) for at in (10, 2, 1, 3))))
    node = view.nodes[0]
    assert [gpu.name for gpu in node.gpus] == ["gpu-2", "gpu-10", "gpu-1", "gpu-3"]
    assert [(island, len(gpus)) for island, gpus in node.islands] == [("0", 2), ("1", 2)]
    drawn = node_map(node, {}, cell=20)
    assert len(drawn.outlines) == 2
    assert drawn.outlines[0].x + drawn.outlines[0].width <= drawn.outlines[1].x
    assert summary(node) == "n: 4 GPUs, 4 free"


async def test_a_picture_is_the_same_with_the_memory_of_the_last_one():
    apiserver, times = ui.Apiserver(ui.a_cluster(6)), ui.Times()
    source, memory = ui.source(apiserver, times), Memory()
    for change in (None, "claims", "slices", "nodes"):
        if change == "claims":
            del apiserver.lists["resourceclaims"][:3]
        if change == "slices":
            apiserver.lists["resourceslices"] = [
                each for each in apiserver.lists["resourceslices"] if each["spec"]["nodeName"] != "node-000"
            ]
        if change == "nodes":
            apiserver.lists["nodes"].pop(1)
        times.now += 10
        facts, fresh = await source.facts(), await ui.source(apiserver, times).facts()
        assert facts.hardware is not None
        assert fresh.hardware is not None
        assert cluster(facts.hardware, memory) == cluster(fresh.hardware), change
