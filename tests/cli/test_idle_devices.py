"""What `explain` says of how busy a gang's devices are: what the driver wrote, and nothing where it wrote nothing lately."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api import crds, names
from fairlead.kube import resources
from fairlead.kube.client import Client
from fairlead.kube.device_usage import DeviceUsage, State
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.ui.model import explanations
from fairlead.ui.model.devices import busy_line, readable
from tests.support.commands import invoke

NOW = 1_800_000_000.0
GIB = 2**30
TEN_IDLE: tuple[State, ...] = ("Idle",) * 10


def claim(
    name: str, *states: State | None, pod: str = "p", age_s: float = 2400, sampled_s: float = 60
) -> dict[str, Any]:
    """A claim with one device for each state; of None nothing is written."""
    entries, results = [], []
    for minor, state in enumerate(states):
        device = {"driver": names.DRIVER, "pool": name, "device": f"gpu-{minor}"}
        results.append({"request": "gpu", **device})
        if state is not None:
            usage = DeviceUsage(state=state, since_s=NOW - age_s, sampled_at_s=NOW - sampled_s)
            entries.append({**device, "data": usage.to_json()})
    return {
        "metadata": {"namespace": "ml", "name": name},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
            "devices": entries,
        },
    }


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([claim("a", "Busy", "Idle"), claim("b", "Idle", None)], "2 of 4 idle, 1 busy; idle: a/gpu-1 for 40m, b/gpu-0 for 40m"),
        ([claim("a", "Busy", "Busy")], "0 of 2 idle, 2 busy"),
        ([claim("a", "Unknown", None)], ""),
        ([claim("a", "Idle", sampled_s=3 * 3600)], ""),
        ([claim("a", "Idle", pod="another")], ""),
        ([{"metadata": {"name": "a"}, "status": {"allocation": "odd"}}], ""),
        ([claim("a", *TEN_IDLE)], "10 of 10 idle, 0 busy; idle: " + ", ".join(f"a/gpu-{n} for 40m" for n in range(8)) + " and 2 more"),
    ],
)  # fmt: skip
def test_idle_devices_are_counted_and_named(claims: list[dict[str, Any]], expected: str) -> None:
    assert busy_line(readable(claims), {"p"}, now=NOW) == expected


def test_shares_are_told_of_with_their_use_their_limits_and_what_a_fault_ends() -> None:
    made = claim("a", "Busy")
    usage = DeviceUsage(
        state="Busy", since_s=NOW - 60, sampled_at_s=NOW - 10, shared=True, memory_used_bytes=3 * GIB,
        memory_bytes=20 * GIB, memory_limit_bytes=20 * GIB,
    )  # fmt: skip
    for entry in (made["status"]["devices"][0], made["status"]["allocation"]["devices"]["results"][0]):
        entry["shareID"] = "s"
    made["status"]["devices"][0]["data"] = usage.to_json()
    assert busy_line(readable([made]), {"p"}, now=NOW) == (
        "0 of 1 idle, 1 busy; shares: a/gpu-0 3.0 GiB of a share of 20.0 GiB, each program at most 20.0 GiB by MPS; "
        "a fatal error of one program ends the claim's other programs on the device, and no other claim's"
    )


def test_a_running_gang_is_told_of_with_its_devices() -> None:
    gang = {"metadata": {"namespace": "ml", "name": "g"}, "spec": {"size": 1}, "status": {"phase": "Running"}}
    shown = {
        p.title: p.lines for p in explanations.gang_explanation(gang, now=NOW, devices="1 of 2 idle, 1 busy").parts
    }
    assert shown["Devices"] == ("1 of 2 idle, 1 busy",)
    assert "Devices" not in {part.title for part in explanations.gang_explanation(gang, now=NOW).parts}


async def test_explain_reads_the_claims_of_a_running_pod(tmp_path: Path) -> None:
    async with ApiServer(workdir=tmp_path) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        async with Client.connect(kubeconfig) as client:
            await client.create(resources.raw(resources.NAMESPACES), {"metadata": {"name": "ml"}})
            for text in crds.render().values():
                await client.create(resources.CRDS, yaml.safe_load(text))
            made = await client.create(
                resources.raw(resources.PODS),
                {"metadata": {"name": "p", "namespace": "ml"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            )
            claims = resources.raw(resources.RESOURCE_CLAIMS)
            request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": 2}}
            status = claim("a", "Busy", "Idle", pod=made["metadata"]["uid"])["status"]
            for entry in status["devices"]:
                entry["data"] |= dict.fromkeys(("since", "sampledAt"), "2999-01-01T00:00:00Z")
            body = {"metadata": {"name": "a", "namespace": "ml"}, "spec": {"devices": {"requests": [request]}}}
            await client.create(claims, body)
            await client.patch(claims, "a", {"status": status}, namespace="ml", subresource="status")
            running = {"status": {"phase": "Running"}}
            await client.patch(resources.raw(resources.PODS), "p", running, namespace="ml", subresource="status")
        arguments = ["explain", "pod/p", "-n", "ml", "--kubeconfig", str(kubeconfig)]
        found = await asyncio.to_thread(invoke, arguments)
    assert "1 of 2 idle, 1 busy; idle: a/gpu-1 for 0s" in found.output
