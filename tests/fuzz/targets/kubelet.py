"""kubelet's gRPC messages, and the allocated claims that they make the driver read.

Names, UIDs, requests and pools become parts of paths: whatever they are, nothing is written outside the driver's directories.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from fairlead.api import names
from fairlead.driver.backend.profiles import loading
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.kubelet.protocol import dra_v1_pb2, pluginregistration_v1_pb2
from fairlead.driver.kubelet.server import DraService, RegistrationService
from fairlead.driver.prepare import cdi, claims, sharing
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.preparer import PrepareError
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube import nulls
from fairlead.kube.resource import ResourceClaim
from tests.fuzz.json_mutations import json_mutations
from tests.fuzz.mutations import byte_mutations
from tests.fuzz.samples import full
from tests.fuzz.target import Target, says_why
from tests.fuzz.targets.driver_files import _NODE
from tests.support.driver.claims import mps, raw_claim, time_slicing
from tests.support.driver.node import Node

_TRICKS = (
    "../x",
    "../../../../tmp/x",
    "/etc/passwd",
    "a/../../b",
    ".",
    "..",
    "a\x00b",
    "a" * 300,
    "",
    "-",
    "a\nb",
    "\u00e9",
    "A_b",
    "uid-1",
    "gpu-0",
    "gpu-\u0661",
    "gpu-" + "9" * 5000,
)


class _Preparer:
    """Answers every claim with the record that a preparer would, without any hardware."""

    async def prepare(self, refs: list[Any]) -> dict[str, Any]:
        device = msgspec.convert(full(ClaimRecord)["devices"][0], ClaimRecord.__annotations__["devices"].__args__[0])
        return {
            ref.uid: ClaimRecord(
                uid=ref.uid, namespace=ref.namespace, name=ref.name, state="prepared", devices=(device,)
            )
            if len(ref.name) % 2
            else "no"
            for ref in refs
        }

    async def unprepare(self, refs: list[Any]) -> dict[str, Any]:
        return {ref.uid: None if len(ref.name) % 2 else "no" for ref in refs}


def calls(scratch: Path) -> Target:
    """The bytes of requests, in both versions of the protocol, through the services."""
    loop = asyncio.new_event_loop()
    plugin: Any = _Preparer()
    versions = [DraService(plugin, shares=shares) for shares in (True, False)]
    registration = RegistrationService(driver=names.DRIVER, endpoint="/x.sock")

    async def serve(data: bytes) -> None:
        for service in versions:
            wanted = dra_v1_pb2.NodePrepareResourcesRequest.FromString(data)
            answer = await service.NodePrepareResources(wanted, None)
            assert set(answer.claims) == {claim.uid for claim in wanted.claims}
            dra_v1_pb2.NodePrepareResourcesResponse.FromString(answer.SerializeToString())
            ended = dra_v1_pb2.NodeUnprepareResourcesRequest.FromString(data)
            assert set((await service.NodeUnprepareResources(ended, None)).claims) == {
                claim.uid for claim in ended.claims
            }
        status = pluginregistration_v1_pb2.RegistrationStatus.FromString(data)
        await registration.NotifyRegistrationStatus(status, None)
        assert (registration.problem is None) is status.plugin_registered

    def run(data: bytes) -> None:
        loop.run_until_complete(serve(data))

    seeds = []
    for uids in (("uid-1",), ("uid-1", "uid-2", "uid-1"), (), *((text,) for text in _TRICKS)):
        request = dra_v1_pb2.NodePrepareResourcesRequest()
        for uid in uids:
            request.claims.add(namespace="ml", name="c", uid=uid)
        seeds.append(request.SerializeToString())
    seeds.append(pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=True, error="x").SerializeToString())
    words = tuple(text.encode() for text in _TRICKS if len(text) < 100)
    return Target(
        name="kubelet-calls",
        run=run,
        close=loop.close,
        seeds=tuple(seeds),
        mutate=byte_mutations(words),
        allowed=(DecodeError,),
        traced=("/driver/kubelet/",),
    )


def _plan(claim: ResourceClaim, backend: SimulatedBackend) -> None:
    inventory = backend.inventory()
    cuttable = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.mig_profiles)
    try:
        planned = claims.plan(claim, driver=names.DRIVER, pool="n1", inventory=inventory, partitionable=cuttable)
        sharing.plan(claim, planned, driver=names.DRIVER, inventory=inventory)
    except ClaimError as error:
        says_why(error)


def allocations(scratch: Path) -> Target:
    """Claims as the apiserver has them: prepared on simulated hardware, released, and read again by the next process."""
    profile_path = scratch / "node.yaml"
    profile_path.write_bytes(msgspec.json.encode(_NODE))
    profile = loading.load(str(profile_path))
    room = scratch / "room"
    (room / "node").mkdir(parents=True)
    decoder = nulls.Decoder(ResourceClaim)
    backend = SimulatedBackend(profile, node="n1")
    node = Node(room / "node", backend, dynamic=True)
    preparer = node.start()
    clean = node.leftovers()
    around = {path.name for path in scratch.iterdir()}

    def run(data: bytes) -> None:
        try:
            claim = decoder.decode(data)
        except msgspec.MsgspecError:
            return
        if claim.status.allocation and any("MPS" in str(config) for config in claim.status.allocation.devices.config):
            _plan(claim, backend)  # the rest starts a process
            return
        try:
            record = preparer.prepare(claim)
            for device in record.devices:
                assert cdi.device_id(record.uid, device).count("=") == 1
            again = preparer.prepare(claim)
            assert again == record, "a claim that is prepared twice gets the same answer"
        except (ClaimError, PrepareError) as error:
            says_why(error)
        finally:
            try:
                preparer.unprepare(claim.metadata.uid)
            except PrepareError as error:
                says_why(error)
        left = node.leftovers()
        assert left == clean, f"what is left of the claim: {left}"
        assert {path.name for path in scratch.iterdir()} == around, "something was written outside"
        assert [path.name for path in room.iterdir()] == ["node"], "something was written outside"

    device = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    share = device | {
        "shareID": "11111111-2222-3333-4444-555555555555",
        "consumedCapacity": {"memory": "10Gi", "multiprocessors": 4},
        "adminAccess": False,
        "tolerations": [{"key": "a"}],
        "bindingConditions": ["x"],
    }
    documents = [
        raw_claim("uid-1", [device]),
        raw_claim("uid-1", [share], config=[time_slicing("Short")]),
        raw_claim("uid-1", [device | {"device": "gpu-1-mig-1g10gb-19-0"}]),
        raw_claim(
            "uid-1",
            [device, device | {"request": "main/sub", "device": "gpu-1"}],
            config=[time_slicing("Long") | {"requests": ["gpu"]}],
        ),
        raw_claim("uid-1", [device | {"driver": "other.example.com"}]),
        raw_claim(
            "uid-1",
            [device],
            config=[mps(defaultPinnedDeviceMemoryLimit="1Gi", defaultPerDevicePinnedMemoryLimit={"0": "2Gi"})],
        ),
        full(ResourceClaim),
    ]
    documents[0]["metadata"]["annotations"] = {names.POD_CLAIM_NAME: "gpu"}
    words = (
        *_TRICKS,
        "gpu-0",
        "gpu-1",
        "gpu-1-mig-1g10gb-19-0",
        "gpu-1-mig-1g10gb-19-1",
        "n1",
        names.DRIVER,
        "uid-1",
        "TimeSlicing",
        "MPS",
        "MigDeviceConfig",
        "FromClass",
        "shareID",
    )
    return Target(
        name="allocations",
        run=run,
        seeds=tuple(msgspec.json.encode(each) for each in documents),
        mutate=json_mutations(words),
        traced=("/driver/prepare/", "/fairlead/api/config.py", "/driver/backend/device_names.py"),
    )
