"""The driver prepares no two claims that overlap beyond what sharing allows, whatever the API says, also after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.driver.prepare.preparer import PrepareError
from tests.support.driver.claims import claim
from tests.support.driver.node import Node

WHOLE = {"device": "gpu-0"}
MIG = {"device": "gpu-0-mig-3g40gb-9-4"}
INSIDE = {"device": "gpu-0-mig-1g10gb-19-5"}
BESIDE = {"device": "gpu-0-mig-1g10gb-19-0"}


def share(name: str, memory: str | None = None, multiprocessors: str | None = None) -> dict[str, Any]:
    consumed = {"memory": memory, "multiprocessors": multiprocessors}
    return {
        "device": "gpu-0",
        "shareID": name,
        "consumedCapacity": {key: value for key, value in consumed.items() if value is not None},
    }


OVERLAPS = {
    "exclusive and exclusive": ([WHOLE], WHOLE),
    "exclusive and MIG": ([WHOLE], MIG),
    "MIG and exclusive": ([MIG], WHOLE),
    "MIG and the same": ([MIG], MIG),
    "MIG and one inside it": ([MIG], INSIDE),
    "MIG and one around it": ([INSIDE], MIG),
    "exclusive and share": ([WHOLE], share("a", "1Gi")),
    "share and exclusive": ([share("a", "1Gi")], WHOLE),
    "share and MIG": ([share("a", "1Gi")], MIG),
    "MIG and share": ([MIG], share("a", "1Gi")),
    "share and the same": ([share("a", "1Gi")], share("a", "1Gi")),
}
FITS = {
    "MIG beside MIG": ([MIG], BESIDE),
    "share beside share": ([share("a", "40Gi")], share("b", "30Gi")),
    "exclusive and admin access": ([WHOLE], WHOLE | {"adminAccess": True}),
    "admin access and exclusive": ([WHOLE | {"adminAccess": True}], WHOLE),
    "share and admin access": ([share("a", "70Gi")], share("b", "70Gi") | {"adminAccess": True}),
    "shares of memory alone": ([share("a", "10Gi", "132")], share("b", "10Gi", "0")),
    "shares that say nothing": ([share("a")], share("b")),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_an_overlap_is_refused_with_both_claims_after_a_restart_too(node: Node, case: str) -> None:
    held, wanted = OVERLAPS[case]
    node.start().prepare(claim("u1", *held))
    driver = node.start()
    with pytest.raises(PrepareError) as raised:
        driver.prepare(claim("u2", wanted))
    text = str(raised.value)
    assert "ResourceClaim ml/claim-u2: gpu-0" in text
    assert "held by ResourceClaim ml/claim-u1 (u1)" in text
    assert "delete this claim's pod so that it is placed again" in text
    driver.unprepare("u1")
    driver.prepare(claim("u2", wanted))
    driver.unprepare("u2")
    assert not node.leftovers()


@pytest.mark.parametrize("case", FITS)
def test_what_sharing_allows_is_prepared(node: Node, case: str) -> None:
    held, wanted = FITS[case]
    driver = node.start()
    driver.prepare(claim("u1", *held))
    driver.prepare(claim("u2", wanted))


@pytest.mark.parametrize(
    ("restart", "wanted", "words"),
    [
        ("no", share("c", "20Gi"), r"it takes 20Gi of memory, and 70Gi of \S+ is held by"),
        ("from the records", share("c", "20Gi"), r"it takes 20Gi of memory, and 70Gi of \S+ is held by"),
        ("from the CDI files", share("c", "1Gi", "33"), r"it takes 33 of multiprocessors, and 100 of 132 is held by"),
    ],
)
def test_shares_take_no_more_than_the_gpu_has(node: Node, restart: str, wanted: dict[str, Any], words: str) -> None:
    driver = node.start()
    driver.prepare(claim("u1", share("a", "40Gi", "50")))
    driver.prepare(claim("u2", share("b", "30Gi", "50")))
    if restart == "from the CDI files":
        for path in (node.path / "claims").iterdir():
            path.unlink()
    if restart != "no":
        driver = node.start()
    with pytest.raises(PrepareError, match=words) as raised:
        driver.prepare(claim("u3", wanted))
    for name in ("ml/claim-u1 (u1)", "ml/claim-u2 (u2)", "ResourceClaim ml/claim-u3: gpu-0"):
        assert name in str(raised.value)
    driver.unprepare("u2")
    driver.prepare(claim("u3", wanted))


MIG_SHARE = share("a", "6Gi") | {"device": "gpu-6-mig-1g10gb-19-0"}


def test_shares_of_a_mig_device_take_no_more_than_it_has(static_node: Node) -> None:
    driver = static_node.start()
    driver.prepare(claim("u1", MIG_SHARE))
    driver.prepare(claim("u2", MIG_SHARE | {"shareID": "b", "consumedCapacity": {"memory": "2Gi"}}))
    driver.prepare(claim("u3", MIG_SHARE | {"device": "gpu-6-mig-1g10gb-19-1"}))  # another one has memory of its own
    with pytest.raises(
        PrepareError, match=r"gpu-6-mig-1g10gb-19-0: it takes 6Gi of memory, and 8Gi of 9728Mi is held by"
    ):
        driver.prepare(claim("u4", MIG_SHARE | {"shareID": "c"}))
    driver.unprepare("u1")
    driver.prepare(claim("u4", MIG_SHARE | {"shareID": "c"}))
    with pytest.raises(PrepareError, match="held by"):
        driver.prepare(claim("u5", {"device": "gpu-6-mig-1g10gb-19-0"}))


def test_two_shares_in_one_claim_count_together(node: Node) -> None:
    with pytest.raises(PrepareError, match=r"it takes 100Gi of memory, and 0 of \S+ is held by no other claim"):
        node.start().prepare(claim("u1", share("a", "50Gi"), share("b", "50Gi") | {"request": "other"}))
