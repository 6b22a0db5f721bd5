"""The stand-in for dra-driver-cpu publishes as that driver does, and gives no CPU to two claims."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.sandbox.cpu_driver import CpuDriver, Mode

Obj = dict[str, Any]


def driver(path: Path, mode: Mode = "grouped", cpus: int = 8) -> CpuDriver:
    nobody: Any = None
    return CpuDriver(nobody, node="n1", profile="hgx-h100", cpus=cpus, cdi_dir=path, mode=mode)


def claim(uid: str) -> Obj:
    return {"metadata": {"uid": uid}}


def consuming(amount: str, device: str = "cpudevnuma000") -> Obj:
    return {"request": "cpus", "driver": "dra.cpu", "pool": "n1", "device": device} | (
        {"consumedCapacity": {"dra.cpu/cpu": amount}} if amount else {}
    )


def numbers(path: Path, uid: str) -> str:
    return (path / f"dra.k8s.io-cpu_claim-{uid}.json").read_text().partition(f"DRA_CPUSET_{uid}=")[2].partition('"')[0]


def test_groups_and_single_cpus_have_the_published_attributes(tmp_path: Path) -> None:
    """As in docs/user/device-attributes.md of that driver, without lists of PCIe roots."""
    (groups,) = driver(tmp_path, cpus=128).devices()
    assert groups[1] == {
        "name": "cpudevnuma001",
        "attributes": {
            "dra.cpu/smtEnabled": {"bool": True},
            "dra.cpu/numCPUs": {"int": 64},
            "resource.kubernetes.io/numaNode": {"int": 1},
            "dra.cpu/socketID": {"int": 1},
            "dra.net/numaNode": {"int": 1},
            "dra.cpu/numaNodeID": {"int": 1},
        },
        "capacity": {"dra.cpu/cpu": {"value": "64"}},
        "allowMultipleAllocations": True,
    }
    first, second = driver(tmp_path, "individual", cpus=192).devices()
    assert (len(first), len(second)) == (128, 64)
    assert [each["attributes"]["dra.cpu/cpuID"]["int"] for each in (*first, *second)][:3] == [0, 96, 1]
    assert len({each["attributes"]["dra.cpu/cpuID"]["int"] for each in (*first, *second)}) == 192
    assert second[-1]["attributes"]["resource.kubernetes.io/numaNode"] == {"int": 1}


async def test_claims_consume_cpus_of_a_group_and_get_them_back(tmp_path: Path) -> None:
    made = driver(tmp_path)
    (first,) = await made.prepare(claim("a"), [consuming("2")])
    assert first["cdi_device_ids"] == ["dra.k8s.io/cpu=claim-a"]
    await made.prepare(claim("b"), [consuming("2"), consuming("1", "cpudevnuma001")])
    await made.prepare(claim("a"), [consuming("2")])
    assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ("0,1", "2,4,5")
    with pytest.raises(ValueError, match="requested=1, available=0"):
        await made.prepare(claim("c"), [consuming("1")])
    made.unprepare("a")
    await made.prepare(claim("c"), [consuming("1")])
    assert numbers(tmp_path, "c") == "0"
    assert not list(tmp_path.glob("*claim-a*"))


@pytest.mark.parametrize(("amount", "said"), [("", "is missing"), ("500m", "whole number"), ("0", "whole number")])
async def test_a_claim_that_consumes_no_whole_cpus_is_refused(tmp_path: Path, amount: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await driver(tmp_path).prepare(claim("a"), [consuming(amount)])


async def test_single_cpus_are_those_that_were_allocated(tmp_path: Path) -> None:
    made = driver(tmp_path, "individual")
    await made.prepare(claim("a"), [consuming("", "cpudev000"), consuming("", "cpudev003")])
    assert numbers(tmp_path, "a") == "0,5"
