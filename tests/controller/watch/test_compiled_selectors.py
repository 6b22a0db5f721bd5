"""A tenant's selectors are compiled to learn whose its claims are: so many tokens of a namespace a run, and each text once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.cel.devices import managed, requests
from fairlead.cel.devices.selector import programs
from fairlead.cel.program_cache import TextMemo
from fairlead.controller.watch.caches import TOKENS_A_RUN, Caches
from fairlead.kube.core import Pod
from fairlead.kube.resource import DeviceClass, ExactDeviceRequest, ResourceClaim

COUNT = 40
LONG = " || ".join(["device.driver != ''"] * 200)
Json = dict[str, Any]


def pod(namespace: str, name: str, annotations: Json) -> Pod:
    spec = {
        "schedulingGates": [{"name": names.ADMISSION_GATE}],
        "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    meta = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, Pod)


def claim(namespace: str, name: str, text: str) -> ResourceClaim:
    exactly = {"deviceClassName": names.GPU_CLASS, "selectors": [{"cel": {"expression": text}}]}
    meta = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}-claim"}
    body = {"metadata": meta, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    return msgspec.convert(body, ResourceClaim)


def crowded(annotations: Json) -> Caches:
    """COUNT pods of red with a long selector each, and one of blue."""
    source: Any = None
    caches = Caches(source, (names.DRIVER,))
    selector = {"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}
    caches.device_classes.note(
        msgspec.convert({"metadata": {"name": names.GPU_CLASS}, "spec": {"selectors": [selector]}}, DeviceClass)
    )
    for number in range(COUNT):
        name = f"p-{number}"
        caches.claims.note(claim("red", name, f"{LONG} || device.driver == '{number}'"))
        caches.pods.note(pod("red", name, annotations))
    caches.claims.note(claim("blue", "b", f"{LONG} || device.driver == 'b'"))
    caches.pods.note(pod("blue", "b", {}))
    return caches


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    programs.clear()
    monkeypatch.setattr(managed, "_excludes", TextMemo[bool](1_000))


@pytest.mark.slow
@pytest.mark.parametrize(
    "gang", [{}, {names.GANG: "huge", names.GANG_SIZE: str(COUNT)}], ids=["gangs of one", "one gang"]
)
def test_what_is_compiled_for_one_namespace_in_a_run_is_bounded_and_ends(gang: Json) -> None:
    caches = crowded(gang)
    runs, compiled = 0, []
    while caches.triggers.wake.is_set():
        before = len(programs)
        found = caches.refresh(turns=True)
        compiled.append(len(programs) - before)
        assert runs or any(each[0] == "blue" for each in found), "others are looked at in the first run"
        runs += 1
        caches.triggers.rest()
    most = TOKENS_A_RUN // 1_000 + 2  # each has more than a thousand tokens; blue's and the class's beside them
    assert max(compiled) <= most
    assert runs > COUNT // most
    assert sum(len(each.members) for each in caches.gangs.values() if each.namespace == "red") == COUNT


def test_a_text_is_compiled_once_though_its_program_is_forgotten() -> None:
    caches = crowded({})
    caches.refresh()
    programs.clear()
    caches.triggers.gangs(list(caches.gangs))
    caches.refresh(turns=True)
    assert len(programs) <= 1, "the class's alone"


def test_a_selector_that_does_not_read_the_driver_is_not_compiled() -> None:
    ask = msgspec.convert(
        {"deviceClassName": "x", "selectors": [{"cel": {"expression": "device.attributes['x'].y == 7654321"}}]},
        ExactDeviceRequest,
    )
    assert requests.may_serve(ask, None, (names.DRIVER,))
    assert len(programs) == 0
