"""What admission costs an apiserver in the life of a pod, on the sandbox: nothing of it comes back unseen.

The bars of `benchmarks protocol` are what is wanted, these what is reached (docs/performance.md).
"""

from __future__ import annotations

from benchmarks.protocol.admission import conversion_figures, conversions

GANG = 2
REACHED = {
    "protocol/conversions-per-pod": 19,
    "protocol/conversions-per-status": 2,
    "protocol/conversions-per-other-creation": 2,
    "protocol/conversions-per-other-update": 2,
}


async def test_no_write_of_a_pods_life_converts_more_objects_than_was_reached() -> None:
    found = {each["figure"]: each for each in conversion_figures(await conversions(GANG), GANG)}
    assert found.keys() == REACHED.keys()
    for figure, most in REACHED.items():
        assert 0 < found[figure]["value"] <= most, found[figure]["by_kind"]
    assert not [kind for kind in found["protocol/conversions-per-pod"]["by_kind"] if kind.startswith("DELETE")]
