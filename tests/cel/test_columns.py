"""The mask of a table is, row by row, what evaluating each device says, however the table came to be."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cel import DeviceTable, DeviceView, Outcome, compile_selector
from fairlead.cel.device import FREE
from fairlead.cel.devices.columns import FAILED, GROUPINGS_MAX, MASKS_MAX, YES
from tests.support.cel import make_device
from tests.support.engine.examples import examples

MakeDevice = Callable[..., DeviceView]
SELECTORS = [
    "true",
    'device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].a == 1',
    'device.attributes["gpu.example.com"].?a.orValue(0) == device.attributes["gpu.example.com"].?b.orValue(0)',
    'device.capacity["gpu.example.com"].memory.isInteger()',
    'device.attributes["gpu.example.com"].exists(k, v, v == 1)',
    '"d" in device.attributes && has(device.attributes["d"].x)',
    "device.allowMultipleAllocations",
    'device.attributes["gpu.example.com"].a',
    'cel.bind(m, device.attributes["gpu.example.com"], m.a == m.b)',
]


def check_agrees(table: DeviceTable, text: str) -> None:
    selector = compile_selector(text)
    mask = table.mask(selector)
    assert len(mask) == len(table)
    for row in range(len(table)):
        try:
            view = table[row]
        except KeyError:
            assert mask[row].outcome is Outcome.NO_MATCH
        else:
            assert mask[row] == selector.verdict(view), (text, view)
    assert list(mask.rows()) == [row for row in range(len(table)) if mask[row].outcome is Outcome.MATCH]
    assert mask.count(FAILED) == sum(mask[row].outcome is Outcome.ERROR for row in range(len(table)))


attributes = st.dictionaries(
    st.sampled_from(["a", "b", "d/x"]),
    st.sampled_from([0, 1, True, False, "1", "v:1.0.0", "v:bad", "\0b1", "", [1, 2], ["1"], ["a", "b"]]),
    max_size=3,
)
capacities = st.dictionaries(st.just("memory"), st.sampled_from(["1.5Gi", "1536Mi", "1", "bad", "1000m"]), max_size=1)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_masks_follow_every_change(data: st.DataObject) -> None:
    table = DeviceTable()
    for _ in range(data.draw(st.integers(1, 12))):
        taken = [row for row in range(len(table)) if table._rows[row] is not FREE]
        action = data.draw(st.sampled_from(["add", "add", "replace", "remove"] if taken else ["add"]))
        if action == "remove":
            table.remove(data.draw(st.sampled_from(taken)))
            continue
        driver = data.draw(st.sampled_from(["gpu.example.com", "nic.example.com"]))
        view = make_device(data.draw(attributes), data.draw(capacities), driver=driver, shared=data.draw(st.booleans()))
        if action == "add":
            table.add(view)
        else:
            table.replace(data.draw(st.sampled_from(taken)), view)
        check_agrees(table, data.draw(st.sampled_from(SELECTORS)))
    for text in SELECTORS:
        check_agrees(table, text)


def test_a_mask_is_a_snapshot(device: MakeDevice) -> None:
    table, selector = DeviceTable(), compile_selector(SELECTORS[2])
    table.add(device({"a": 1}))
    before = table.mask(selector)
    assert table.mask(selector) is before
    table.replace(0, device({"b": 1}))
    after = table.mask(selector)
    assert before[0].outcome is Outcome.MATCH
    assert after[0].outcome is Outcome.ERROR
    assert after[0].reason == "no such key: a"


def test_a_selector_is_evaluated_once_per_kind_of_device(device: MakeDevice) -> None:
    table = DeviceTable()
    for index in range(1000):
        table.add(device({"a": index % 3, "uuid": f"GPU-{index}"}))
    mask = table.mask(compile_selector(SELECTORS[2]))
    assert len(mask.reasons) == 3
    assert mask.count(YES) == 333


def test_rows_are_reused_lowest_first(device: MakeDevice) -> None:
    table = DeviceTable()
    for _ in range(4):
        table.add(device())
    table.remove(2)
    table.remove(0)
    assert [table.add(device()) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(IndexError):
        table.remove(9)
    table.remove(4)
    with pytest.raises(KeyError):
        table.replace(4, device())


def test_caches_are_bounded(device: MakeDevice) -> None:
    table = DeviceTable()
    table.add(device({"a": 1}))
    for index in range(MASKS_MAX + 10):
        table.mask(compile_selector(f'device.attributes["gpu.example.com"].n{index} == 1'))
    assert len(table._evaluated) == MASKS_MAX
    assert len(table._groupings) == GROUPINGS_MAX


def test_changes_beyond_the_journal_are_not_lost(device: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.cel.devices.columns.JOURNAL_MAX", 5)
    table, choose = DeviceTable(), random.Random(1)
    for _ in range(40):
        table.add(device({"a": choose.randrange(2)}))
        if choose.random() < 0.3:
            check_agrees(table, SELECTORS[2])
    check_agrees(table, SELECTORS[2])
