"""Alike nodes are answered once: which devices selectors select, by what they read of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from fairlead.api import names
from fairlead.engine.inventory import selectors as module
from fairlead.engine.inventory.selectors import Selection, Selectors
from tests.support.engine.objects import Json, gpu, mig_gpu
from tests.support.engine.world import World

TYPE = f'device.attributes["{names.DRIVER}"].type == "gpu"'
PRODUCT = f'device.attributes["{names.DRIVER}"].productName.contains("A100")'
MEMORY = f'device.capacity["{names.DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'
ISLAND = f'device.attributes["{names.DRIVER}"].nvlinkDomain == 0'  # fails where the attribute lacks
ANYTHING = f'"type" in device.attributes["{names.DRIVER}"]'
UUID = f'device.attributes["{names.DRIVER}"].uuid == "GPU-1"'
BROKEN = "device.attributes["
EXPRESSIONS = (TYPE, PRODUCT, MEMORY, ISLAND, ANYTHING, UUID, BROKEN)


def zoo() -> dict[str, Sequence[Json]]:
    """Nodes of several layouts, alike and unlike in values."""
    parts, _ = mig_gpu(0)
    odd = gpu(2, island=None)
    unreadable = gpu(3)
    unreadable["attributes"]["firmware"] = {"version": "no version"}
    return {
        "a": [gpu(0), gpu(1)],
        "b": [gpu(0), gpu(1)],
        "c": [gpu(0, product="NVIDIA A100-SXM4-80GB"), gpu(1)],
        "d": [gpu(0, memory="24Gi"), gpu(1)],
        "e": [gpu(0), odd],
        "f": [gpu(0), unreadable],
        "g": [*parts, gpu(1, island=None)],
        "h": [*parts, gpu(1)],
        "i": [{"name": "bare-0"}, {"name": "bare-1"}],
    }


def world(nodes: dict[str, Sequence[Json]]) -> World:
    made = World()
    for name, devices in nodes.items():
        made.add_node(name, devices)
    return made


def one_by_one(stages: tuple[tuple[str, ...], ...], made: World, node: str) -> Selection:
    selectors, rejected = Selectors(), [0] * len(stages)
    noted: list[tuple[int, str | None]] = []
    for position, device in enumerate(made.inventory.on_node(node, {}).devices):
        answers = [selectors.evaluate(texts, device) for texts in stages]
        stage = next((number for number, answer in enumerate(answers) if answer is not True), None)
        answer = None if stage is None else answers[stage]
        if answer is False and stage is not None:
            rejected[stage] += 1
        else:
            assert not isinstance(answer, bool)
            noted.append((position, answer))
    return Selection(tuple(noted), tuple(rejected))


def test_nodes_that_differ_in_what_is_not_read_share_one_answer():
    made = world({"a": [gpu(0), gpu(1)], "b": [gpu(0), gpu(1, product="NVIDIA L40S")]})
    a, b = (made.inventory.on_node(name, {}) for name in "ab")
    selectors = Selectors()
    assert a.layout is b.layout
    assert selectors.select(((TYPE,), ()), a) is selectors.select(((TYPE,), ()), b)
    assert selectors.select(((TYPE,), (PRODUCT,)), a) is not selectors.select(((TYPE,), (PRODUCT,)), b)


def test_a_device_of_another_kind_is_another_layout():
    made = world({"a": [gpu(0)], "b": [gpu(0, memory="24Gi")], "c": [gpu(0, island=None)]})
    layouts = {made.inventory.on_node(name, {}).layout for name in "abc"}
    assert len(layouts) == 3


@pytest.mark.parametrize("room", [module.SELECTION_BYTES_MAX, 1_000], ids=["remembered", "forgotten"])
def test_a_node_is_answered_as_its_devices_one_by_one(room: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SELECTION_BYTES_MAX", room)
    made, selectors, draw = world(zoo()), Selectors(), Random(1)
    for _ in range(300):
        stages = tuple(tuple(draw.sample(EXPRESSIONS, draw.randint(0, 2))) for _ in range(2))
        name = draw.choice(sorted(made.node_json))
        assert selectors.select(stages, made.inventory.on_node(name, {})) == one_by_one(stages, made, name)
