"""What is written to turn the stored slices into the wanted ones: the Go helper's rules, as tables of before and after."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead.driver.publish import sync
from fairlead.driver.publish.slices import SliceBody
from fairlead.driver.publish.sync import Pool, Write
from fairlead.kube.resource import Device, DeviceAttribute, DeviceCapacity, DeviceTaint

POOL = Pool(node_name="n1", node_uid="node-uid")
TAINT = DeviceTaint(key="gpu.fairlead.dev/xid", value="79", effect="NoSchedule")


def body(*names: str, memory: str = "80Gi", taints: tuple[DeviceTaint, ...] = ()) -> SliceBody:
    return SliceBody(
        devices=tuple(
            Device(
                name=name,
                attributes={"type": DeviceAttribute(string="gpu")},
                capacity={"memory": DeviceCapacity(value=memory)},
                taints=taints,
            )
            for name in names
        )
    )


class Store:
    """An apiserver for slices that only applies writes."""

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self._count = 0

    def apply(self, writes: list[Write], drop: str | None = None) -> None:
        for write in writes:
            self._count += 1
            if write.verb == "delete":
                del self.slices[write.object["metadata"]["name"]]
                continue
            stored = copy.deepcopy(write.object)
            metadata = stored["metadata"]
            metadata.setdefault("name", f"{metadata.get('generateName', '')}{self._count:05x}")
            metadata["resourceVersion"], metadata["uid"] = str(self._count), f"uid-{metadata['name']}"
            for device in stored["spec"].get("devices", []):
                for taint in device.get("taints", []):
                    taint.setdefault("timeAdded", f"2026-11-21T00:00:{self._count:02d}Z")
                if drop:
                    device.pop(drop, None)
            self.slices[metadata["name"]] = stored

    def sync(self, *bodies: SliceBody) -> list[tuple[str, int | None]]:
        before = copy.deepcopy(self.slices)
        writes = sync.plan(POOL, bodies, self.slices.values())
        assert self.slices == before  # the plan is pure
        self.apply(writes)
        assert sync.plan(POOL, bodies, self.slices.values()) == []  # and nothing is left to write
        return [(write.verb, write.index) for write in writes]

    @property
    def generations(self) -> set[int]:
        return {stored["spec"]["pool"]["generation"] for stored in self.slices.values()}

    @property
    def counts(self) -> set[int]:
        return {stored["spec"]["pool"]["resourceSliceCount"] for stored in self.slices.values()}


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_first_publication_is_generation_1_with_names_that_sort(store: Store) -> None:
    bodies = [body(f"gpu-{number}") for number in range(17)]
    assert store.sync(*bodies) == [("create", index) for index in range(17)]
    assert store.generations == {1}
    assert store.counts == {17}
    names = sorted(store.slices)
    assert [store.slices[name]["spec"]["devices"][0]["name"] for name in names] == [f"gpu-{n}" for n in range(17)]
    assert names[16].startswith("00010-gpu.fairlead.dev-n1-")
    first = store.slices[names[0]]
    assert first["spec"]["nodeName"] == "n1"
    assert first["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": True}
    ]


def test_one_slice_that_changed_is_updated_in_place(store: Store) -> None:
    store.sync(body("gpu-0"), body("gpu-1"))
    assert store.sync(body("gpu-0"), body("gpu-1", taints=(TAINT,))) == [("update", 1)]
    assert store.generations == {1}


def test_two_slices_that_changed_are_a_new_generation_of_all(store: Store) -> None:
    store.sync(body("gpu-0"), body("gpu-1"), body("gpu-2"))
    changed = (body("gpu-0", memory="40Gi"), body("gpu-1", memory="40Gi"), body("gpu-2"))
    assert store.sync(*changed) == [("update", 0), ("update", 1), ("update", 2)]
    assert store.generations == {2}


def test_one_more_slice_updates_the_others_before_it_is_created(store: Store) -> None:
    store.sync(body("gpu-0"))
    assert store.sync(body("gpu-0"), body("gpu-1")) == [("update", 0), ("create", 1)]
    assert (store.generations, store.counts) == ({2}, {2})


def test_one_slice_less_is_deleted_when_the_new_generation_is_there(store: Store) -> None:
    store.sync(body("gpu-0"), body("gpu-1"))
    assert store.sync(body("gpu-0")) == [("update", 0), ("delete", None)]
    assert (store.generations, store.counts) == ({2}, {1})


def test_a_wiped_slice_comes_back_in_a_new_generation(store: Store) -> None:
    store.sync(body("gpu-0"), body("gpu-1"))
    del store.slices[min(store.slices)]
    assert store.sync(body("gpu-0"), body("gpu-1")) == [("update", 1), ("create", 0)]
    assert store.generations == {2}


def test_leftovers_of_an_older_generation_are_deleted(store: Store) -> None:
    store.sync(body("gpu-0"))
    stale = copy.deepcopy(next(iter(store.slices.values())))
    stale["metadata"] |= {"name": "00000-gpu.fairlead.dev-n1-old", "uid": "uid-old"}
    stale["spec"]["pool"]["generation"] = 0
    store.slices["00000-gpu.fairlead.dev-n1-old"] = stale
    assert store.sync(body("gpu-0")) == [("delete", None)]
    assert store.generations == {1}


def test_slices_of_an_earlier_naming_are_replaced(store: Store) -> None:
    store.sync(body("gpu-0"))
    [(name, stored)] = list(store.slices.items())
    del store.slices[name]
    stored["metadata"]["name"] = "n1-gpu.fairlead.dev-abcde"
    store.slices["n1-gpu.fairlead.dev-abcde"] = stored
    assert store.sync(body("gpu-0")) == [("create", 0), ("delete", None)]
    assert store.generations == {2}  # above the one that readers have seen


def test_quantities_compare_by_value(store: Store) -> None:
    store.sync(body("gpu-0", memory="80Gi"))
    [stored] = store.slices.values()
    stored["spec"]["devices"][0]["capacity"]["memory"]["value"] = "81920Mi"
    assert store.sync(body("gpu-0", memory="80Gi")) == []


def test_a_taint_keeps_its_time_while_it_stays(store: Store) -> None:
    store.sync(body("gpu-0", taints=(TAINT,)))
    [stored] = store.slices.values()
    since = stored["spec"]["devices"][0]["taints"][0]["timeAdded"]
    other = DeviceTaint(key="gpu.fairlead.dev/gpu-lost", effect="NoExecute")
    store.sync(body("gpu-0", taints=(TAINT, other)))
    [stored] = store.slices.values()
    times = {taint["key"]: taint["timeAdded"] for taint in stored["spec"]["devices"][0]["taints"]}
    assert times["gpu.fairlead.dev/xid"] == since
    assert times["gpu.fairlead.dev/gpu-lost"] != since


def test_slices_being_deleted_do_not_count(store: Store) -> None:
    store.sync(body("gpu-0"))
    next(iter(store.slices.values()))["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    writes = sync.plan(POOL, [body("gpu-0")], store.slices.values())
    assert [write.verb for write in writes] == ["create"]
    assert writes[0].object["spec"]["pool"]["generation"] == 2


class TestDropped:
    def test_what_the_apiserver_dropped_is_named_with_its_gate(self) -> None:
        wanted = sync.to_json(body("gpu-0", taints=(TAINT,)))
        kept = copy.deepcopy(wanted)
        del kept["devices"][0]["taints"]
        assert sync.dropped_fields(wanted, kept) == ["devices[].taints (feature gate DRADeviceTaints)"]


@pytest.mark.parametrize("name", ["stolen", "00000-gpu.fairlead.dev-n1-stolen"])
def test_a_generation_above_which_there_is_none_goes_last_and_the_pool_begins_again(name: str) -> None:
    """Whoever holds a node's token once could otherwise keep that node's devices away for as long as his slice is there."""
    store = Store()
    store.sync(body("gpu-0"), body("gpu-1"))
    stolen = copy.deepcopy(next(iter(store.slices.values())))
    stolen["metadata"] |= {"name": name, "resourceVersion": "99", "uid": "stolen"}
    stolen["spec"]["pool"] = {"name": "n1", "generation": sync.GENERATION_MAX, "resourceSliceCount": 1}
    store.slices[name] = stolen
    writes = sync.plan(POOL, [body("gpu-0"), body("gpu-1")], store.slices.values())
    assert [write.verb for write in writes] == ["delete"] * 3 + ["create"] * 2
    assert writes[2].object["metadata"]["name"] == name
    store.apply(writes)
    assert [each["spec"]["pool"]["generation"] for each in store.slices.values()] == [1, 1]
    assert store.sync(body("gpu-0"), body("gpu-1")) == []


def test_after_a_write_without_an_answer_the_next_one_is_above_its_generation() -> None:
    store = Store()
    store.apply(sync.plan(POOL, [body("gpu-0")], ()))
    writes = sync.plan(POOL, [body("gpu-0"), body("gpu-1")], store.slices.values(), above=7)
    assert {write.object["spec"]["pool"]["generation"] for write in writes} == {8}
