"""What is created for trial: a pod tells our webhook from what else refuses it, slices tell what an apiserver keeps of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.cli.health import trials
from fairlead.cli.health.seen import SliceTrial
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.releases import NEEDS, RELEASES, TRIED, Minor, gate_of, written
from fairlead.kube.resources import RESOURCE_SLICES, Raw
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.release import Release

ROOT = Path(__file__).parents[2]
KEYS = {each.key for each in trials.TRIED}
ON = {each.gate: True for each in trials.TRIED}


class Refusing:
    """A client whose every write is refused by one error."""

    def __init__(self, error: errors.ApiError) -> None:
        self._error = error

    async def create(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (errors.ServerError('failed calling webhook "pods.fairlead.dev": refused', status=500), False),
        (errors.ServerError('failed calling webhook "pods.kyverno.svc": refused', status=500), None),
        (errors.Forbidden('admission webhook "pods.fairlead.dev" denied the request: no', status=403), True),
        (errors.Forbidden('pods is forbidden: User "u" cannot create resource "pods"', status=403), None),
        (errors.NotFound('namespaces "x" not found', status=404), None),
        (errors.Forbidden('pods "x" is forbidden: violates PodSecurity "restricted:latest"', status=403), True),
        (errors.Forbidden('pods "x" is forbidden: exceeded quota: q', status=403), True),
    ],
)
async def test_the_pod_tells_our_webhook_from_what_else_refuses(error: errors.ApiError, answered: bool | None) -> None:
    client: Any = Refusing(error)
    trial, _ = await trials.webhook(client, "default")
    assert trial.answered is answered


def test_every_guarded_group_of_a_slices_fields_is_tried() -> None:
    sent = [trials._slice(each) for each in (trials._DEVICE, trials._COUNTERS | trials._DRAWS)]
    assert set().union(*(trials.kept_of(each, each) for each in sent)) == KEYS
    assert {each.gate for each in NEEDS if each.key in KEYS} == trials.GATES


def test_a_field_that_does_not_come_back_is_dropped_and_of_a_group_one_is_enough() -> None:
    sent = trials._slice(trials._DEVICE)
    for field in ("taints", "bindingConditions", "bindsToNode", "allowMultipleAllocations"):
        stored = copy.deepcopy(sent)
        del stored["spec"]["devices"][0][field]
        lost = [key for key, kept in trials.kept_of(sent, stored).items() if not kept]
        assert [each.gate for each in NEEDS if each.key in lost] == [gate_of(field)]
    assert not any(trials.kept_of(sent, {"spec": {"devices": [None, {"capacity": 3}]}}).values())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("minor", [each for each in RELEASES if each in TRIED], ids=written)
@pytest.mark.parametrize("gates", [None, ON, dict.fromkeys(ON, False)], ids=["default", "on", "off"])
async def test_slices_tell_what_each_release_keeps(tmp_path: Path, minor: Minor, gates: dict[str, bool] | None) -> None:
    release = Release.of(minor, gates)
    found = await tried(tmp_path, ApiServer(workdir=tmp_path / "server", release=release))
    assert found == SliceTrial(kept={each.key: release.has(each.key) for each in trials.TRIED})


@pytest.mark.slow
async def test_one_gate_is_told_from_the_others(tmp_path: Path) -> None:
    for number, gate in enumerate(ON):
        release = Release.of(min(TRIED), {gate: True})
        found = await tried(tmp_path, ApiServer(workdir=tmp_path / str(number), release=release))
        assert [key for key, kept in found.kept.items() if kept] == [
            each.key for each in trials.TRIED if each.gate == gate
        ]


async def tried(tmp_path: Path, server: ApiServer) -> SliceTrial:
    """By an administrator of a cluster that has Fairlead's policies; nothing of it is stored."""
    async with server:
        config = tmp_path / "config"
        config.write_text(server.kubeconfig())
        async with Client.connect(config) as client:
            await Applier(client).apply(manifests.load(ROOT / "manifests" / "base"))
            found = await trials.slices(client)
            assert (await client.list(RESOURCE_SLICES)).items == []
    return found


async def test_who_may_not_create_slices_is_told_so(tmp_path: Path) -> None:
    async with ApiServer(workdir=tmp_path / "server") as server:
        config = tmp_path / "config"
        config.write_text(server.kubeconfig("stranger", groups=("system:authenticated",)))
        async with Client.connect(config) as client:
            found = await trials.slices(client)
    gap = "which fields of slices the apiserver keeps: you may not create resourceslices.resource.k8s.io"
    assert found == SliceTrial(gap=gap)


@pytest.mark.parametrize(
    "error",
    [
        errors.Forbidden("resourceslices is forbidden: policy p denied request", status=403),
        errors.Invalid("spec.devices: Invalid value", status=422),
        errors.Unreachable("connection reset"),
    ],
)
async def test_a_slice_that_is_refused_for_another_reason_tells_nothing_but_that(error: errors.ApiError) -> None:
    client: Any = Refusing(error)
    found = await trials.slices(client)
    assert found.kept == {}
    assert str(error) in found.gap


async def test_counters_are_tried_apart_where_devices_may_not_be_beside_them() -> None:
    sent: list[Raw] = []

    class Apart:
        async def create(self, _: Any, obj: Raw, *, dry_run: bool) -> Raw:
            assert dry_run
            sent.append(obj["spec"])
            if {"sharedCounters", "devices"} <= obj["spec"].keys():
                raise errors.Invalid("spec: only one of sharedCounters, devices", status=422)
            return obj

    client: Any = Apart()
    assert (await trials.slices(client)).kept == dict.fromkeys(sorted(KEYS), True)
    assert [sorted({"sharedCounters", "devices"} & each.keys()) for each in sent] == [
        ["devices"],
        ["devices", "sharedCounters"],
        ["sharedCounters"],
    ]
    assert {each["driver"] for each in sent}.isdisjoint({names.DRIVER})
