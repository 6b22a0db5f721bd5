"""What one node's driver publishes makes no review longer: models of devices that no node has are not looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.kube.informer import Change
from fairlead.webhook.cache.trimmed import NODE_MODELS_MAX, DeviceModelIndex, TrimmedSlice
from tests.support.engine.objects import gpu, mig_gpu, slice_of

Json = dict[str, Any]


def trimmed(slice_: Json) -> TrimmedSlice:
    return msgspec.convert(slice_, TrimmedSlice)


def published(index: DeviceModelIndex, old: Json | None, new: Json | None) -> None:
    before, after = (None if each is None else trimmed(each) for each in (old, new))
    kind = "DELETED" if new is None else "ADDED" if old is None else "MODIFIED"
    index.update(Change(kind, (new or old or {})["metadata"]["name"], before, after))


def lies(number: int) -> Json:
    (made,) = slice_of("liar", [gpu(minor, product=f"P{number}-{minor}") for minor in range(64)])
    made["metadata"]["name"] = f"liar-{number}"
    return made


def labels(index: DeviceModelIndex) -> list[str]:
    return sorted(model.label for model in index.models())


def test_a_node_of_more_models_than_a_node_has_counts_for_none_until_they_are_gone() -> None:
    """Each review of a claim looked at all 6,400 of them."""
    index = DeviceModelIndex()
    (honest,) = slice_of("n1", [gpu(minor) for minor in range(8)])
    published(index, None, honest)
    known = labels(index)
    for number in range(100):
        published(index, None, lies(number))
    assert labels(index) == known
    for number in range(1, 100):
        published(index, lies(number), None)
    assert len(labels(index)) == 1 + 64
    published(index, lies(0), None)
    published(index, honest, None)
    assert labels(index) == []


def test_what_a_node_really_has_counts_once_however_many_nodes_have_it() -> None:
    index = DeviceModelIndex()
    devices, _ = mig_gpu(0)
    for node in ("n1", "n2"):
        published(index, None, slice_of(node, devices)[0])
    known = labels(index)
    assert 1 < len(known) <= NODE_MODELS_MAX
    published(index, slice_of("n1", devices)[0], slice_of("n1", [gpu(0)])[0])
    assert set(known) <= set(labels(index))
    published(index, slice_of("n2", devices)[0], None)
    assert labels(index) == ["NVIDIA H100 80GB HBM3"]
