"""What a change does to a cluster: more nodes, fewer, other quotas, another gang."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.submissions import resubmitted
from fairlead.engine.forecast.what_if import Change, ChangeError, Comparison, NewNode, compare
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import resource
from tests.engine.forecast.test_forecast import HOUR, NOW, full_world, history, whole_nodes
from tests.support.engine.objects import Json, claim_spec, device_request, gang, gpu, slice_of
from tests.support.engine.world import World

TIMES = RunTimes(history("run", [2.0] * 9))


def new_node(name: str) -> NewNode:
    world = World()
    world.add_node(name, [gpu(minor) for minor in range(8)])
    info = world.nodes.get(name)
    assert info is not None
    made = slice_of(name, [gpu(minor) for minor in range(8)])
    return NewNode(
        info=NodeInfo(name=name, labels=info.labels, allocatable=dict(info.allocatable)),
        slices=tuple(msgspec.convert(made, list[resource.ResourceSlice])),
    )


def compared(world: World, change: Change, *gangs: object, **more: object) -> Comparison:
    return compare(world.snapshot(*gangs), NOW, change, TIMES, **{"horizon_s": 24 * HOUR, **more})  # type: ignore[arg-type]


def test_a_gang_starts_at_once_on_a_node_that_is_added():
    found = compared(full_world(1), Change(add=(new_node("extra"),)), whole_nodes("a"))
    before, after = (each.starts["ml/a"].p50_s for each in (found.before, found.after))
    assert before == pytest.approx(HOUR, rel=0.2)
    assert after == 0.0
    assert (found.before.devices, found.after.devices) == (8, 16)


@pytest.mark.parametrize("extra", [1, 2, 4])
def test_alike_gangs_of_one_queue_never_start_later_with_more_nodes(extra: int):
    """True of these: in general a place for one gang may be what another waits for."""
    line = [whole_nodes(f"a-{number}", created=NOW + number) for number in range(8)]
    found = compared(full_world(2), Change(add=tuple(new_node(f"extra-{n}") for n in range(extra))), *line)
    for each in line:
        before, after = (future.starts[each.id].p50_s for future in (found.before, found.after))
        assert before is not None and after is not None and after <= before + 1.0


def test_gangs_on_a_removed_node_are_stopped_and_wait_again():
    found = compared(full_world(2), Change(remove=("node-00000",)))
    assert list(found.after.evicted.values()) == ["node node-00000 is removed"]
    (stopped,) = found.after.evicted
    assert found.after.starts[stopped].p50_s == pytest.approx(HOUR, rel=0.2)
    assert (found.before.devices, found.after.devices) == (16, 8)


def test_a_gang_that_no_node_is_left_for_cannot_run():
    found = compared(full_world(2), Change(remove=("node-00000",)), whole_nodes("a", 2))
    assert not found.before.starts["ml/a"].never
    assert found.after.starts["ml/a"].never


def test_a_submitted_gang_is_in_the_second_future_only():
    found = compared(full_world(1), Change(submit=(whole_nodes("new"),)))
    assert "ml/new" not in found.before.starts
    assert found.after.starts["ml/new"].p50_s == pytest.approx(HOUR, rel=0.2)


def test_a_quota_changes_fair_shares():
    world = full_world(1)
    world.flavors = (FlavorSpec(name="h100", device_selector='device.driver == "gpu.fairlead.dev"'),)
    quota = FlavorQuota(flavor="h100", deserved=4)
    world.queues = tuple(QueueSpec(name=name, uid=name, quotas=(quota,)) for name in ("a", "b"))
    changed = replace(world.queues[0], quotas=(replace(quota, deserved=6),))
    waiting = [whole_nodes(name, queue=name) for name in ("a", "b")]
    found = compared(world, Change(queues={"a": changed}), *waiting)
    shares = [{use.name: use.flavors[0].deserved for use in each.queues} for each in (found.before, found.after)]
    assert shares == [{"a": 4, "b": 4}, {"a": 6, "b": 4}]


@pytest.mark.parametrize(
    ("change", "more", "text"),
    [
        (Change(), {}, "nothing is changed"),
        (Change(remove=("nodule",)), {}, "node nodule: there is none of that name"),
        (Change(queues={"q": QueueSpec(name="q")}), {}, "queue q: there is none of that name; there are: none"),
        (Change(remove=("node-00000",)), {"horizon_s": 0.0}, "horizon: 0 s"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(change: Change, more: dict[str, float], text: str):
    with pytest.raises(ChangeError, match=text):
        compared(full_world(1), change, **more)


def test_a_running_gang_would_request_what_it_holds():
    world = full_world(1)
    request = resubmitted(next(iter(world.running.values())), world.snapshot())
    assert request is not None
    (claim,) = request.claims
    (asked,) = claim.spec.devices.requests
    assert asked.exactly is not None
    assert (asked.exactly.count, asked.exactly.device_class_name) == (8, "gpu.fairlead.dev")
    assert request.size == 1


@pytest.mark.parametrize(
    "spec",
    [
        claim_spec(
            device_request(), config=[{"opaque": {"driver": names.DRIVER, "parameters": {"sharing": {"a": 1}}}}]
        ),
        claim_spec(device_request(capacity={"requests": {"memory": "10Gi"}})),
    ],
    ids=["a time-slicing config", "a request for capacity"],
)
def test_a_claim_that_holds_a_map_ends_no_forecast_and_no_comparison(spec: Json):
    waiting = [gang(name, 1, spec) for name in "ab"]
    world = full_world(1)
    found = forecast(world.snapshot(*waiting, whole_nodes("c")), NOW, TIMES, seed=1, samples=4)
    assert found.samples == 4
    assert {name: each.p50 is not None for name, each in found.gangs.items()} == {f"ml/{n}": True for n in "abc"}
    assert compared(world, Change(add=(new_node("extra"),)), *waiting).after.starts["ml/a"].p50_s == 0.0
