"""`fairlead smoke NODE`: every free device of a node is allocated through Fairlead, and looked at from a container.

Each device by itself, or all whole GPUs at once. What is held, tainted or not yet cut is left out and said so. Claims and pods are
removed at the end, also after Ctrl-C and SIGTERM; what a killed run left, by the next one on that node. Runs with the user's
rights: to list ResourceSlices and ResourceClaims, and to create, list and delete pods and ResourceClaims in one namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from fairlead.api import names
from fairlead.cli import completion, printer
from fairlead.cli.gpus import smoke_objects
from fairlead.cli.gpus.published import belongs, holders, slices_of
from fairlead.cli.gpus.smoke_objects import verdict
from fairlead.cli.options import Namespace
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, Raw, raw
from fairlead.ui.model.gangs import line
from fairlead.ui.reading.cluster import Cluster, NotReadError

POLL_S = 0.5
RECHECK_S = 5.0
"""How often a device whose pod has no node yet is looked up again."""
ALL_WELL, FAILED, NOTHING_TESTED = 0, 1, 3
_CLAIMS, _GANGS, _PODS = raw(RESOURCE_CLAIMS), raw(GANGS), raw(PODS)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A device or, with `together`, all. `result` is ok, failed or skipped."""

    devices: tuple[str, ...]
    result: str
    detail: str
    seconds: float | None = None
    bus_gb_s: float | None = None

    def structured(self) -> dict[str, Any]:
        return {
            "devices": list(self.devices),
            "result": self.result,
            "detail": self.detail,
            "seconds": self.seconds,
            "busGBs": self.bus_gb_s,
        }


@dataclass(frozen=True)
class Device:
    name: str
    uuid: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class SmokeTest(Shown):
    """Test a node: allocate each free device, look at it from a container, clean up. Exit code 0: all well; 1: not; 3: none free."""

    node: Annotated[str, typer.Argument(help="The node.", autocompletion=completion.nodes)]
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="All free GPUs in one pod, with NCCL's bandwidth if nccl-tests is in the image."
        ),
    ] = False
    image: Annotated[
        str | None,
        typer.Option(help="Image with a shell; nvidia-smi comes with the devices. Default: a small one of CUDA's."),
    ] = None
    also: Annotated[
        str, typer.Option("--also", metavar="COMMAND", help="A command that has to succeed in the container, too.")
    ] = ""
    namespace: Namespace = None
    queue: Annotated[
        str | None,
        typer.Option(help="Queue of the pods. Default: as the namespace has it.", autocompletion=completion.queues),
    ] = None
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for each device.")] = 300.0

    def run(self) -> int:
        async def work(cluster: Cluster) -> list[Row]:
            task = asyncio.current_task()
            assert task is not None
            with contextlib.suppress(ValueError, NotImplementedError, RuntimeError):  # outside the main thread
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await Smoke(cluster.client, self).run()

        try:
            rows = self.ask(work)
        except (KeyboardInterrupt, asyncio.CancelledError):
            say("stopped; its pods and claims are removed", file=sys.stderr)
            return 130
        if self.output != "table":
            printer.structured([row.structured() for row in rows], self.output)
        else:
            _print(rows)
        tested = [row for row in rows if row.result != "skipped"]
        if not tested:
            say(f"no device of {self.node} could be tested", file=sys.stderr)
            return NOTHING_TESTED
        return ALL_WELL if all(row.result == "ok" for row in tested) else FAILED


class Smoke:
    def __init__(self, client: Client, asked: SmokeTest, *, number: str | None = None) -> None:
        self._client = client
        self._asked = asked
        self._namespace = asked.namespace or asked.own_namespace
        self._number = number or secrets.token_hex(3)
        self._told: set[str] = set()
        self._labels = {smoke_objects.LABEL: self._number, smoke_objects.NODE_LABEL: asked.node[:63].rstrip("-.")}

    async def run(self) -> list[Row]:
        """A row for each device, in the order of their names; nothing is left, whatever happens."""
        devices, rows = await self._found()
        groups = [[device] for device in devices]
        if self._asked.together:
            groups = [[device for device in devices if device.kind == "gpu"]]
        try:
            await self._remove_older()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._test(group)) for group in groups if group]
            rows += [task.result() for task in running]
        finally:
            await asyncio.shield(asyncio.ensure_future(self._remove(f"{smoke_objects.LABEL}={self._number}")))
        return sorted(rows, key=lambda row: [_order(name) for name in row.devices])

    # -- which devices -------------------------------------------------------------------------------------------------

    async def _found(self) -> tuple[list[Device], list[Row]]:
        """The devices to test, and a row for each that is not. Raises NotReadError without any."""
        node = self._asked.node
        published = await self._published()
        if not published:
            raise NotReadError(
                f"node {node} publishes no devices of {names.DRIVER}; is that its name, and does its driver run?"
            )
        held = {
            device: holder.claim
            for holder in holders(
                (await self._client.list(_CLAIMS)).items,
                node,
                {str(each["name"]).partition("-mig-")[0] for each in published},
            )
            for device in holder.devices
        }
        found: list[Device] = []
        rows: list[Row] = []
        for each in published:
            name, attributes = str(each["name"]), each.get("attributes") or {}
            uuid = (attributes.get("uuid") or {}).get("string")
            if not uuid:
                continue  # a MIG device that is only a possibility
            if each.get("taints"):
                rows.append(Row(devices=(name,), result="skipped", detail=f"tainted: {_taints(each)}"))
            elif busy := next((device for device in held if device == name or belongs(device, {name})), None):
                rows.append(Row(devices=(name,), result="skipped", detail=f"claim {held[busy]} has {busy}"))
            else:
                found.append(Device(name, str(uuid), str((attributes.get("type") or {}).get("string") or "gpu")))
        return found, rows

    async def _published(self) -> list[Raw]:
        """The node's devices as its driver published them last."""
        slices = await slices_of(self._client, self._asked.node)
        newest = max((each["spec"]["pool"].get("generation", 0) for each in slices), default=0)
        return [
            device
            for each in slices
            if each["spec"]["pool"].get("generation", 0) == newest
            for device in each["spec"].get("devices") or ()
        ]

    async def _withdrawn(self, devices: Sequence[Device]) -> str | None:
        """Why these devices will not be allocated any more: one has been tainted since, or is gone."""
        published = {str(each["name"]): each for each in await self._published()}
        if gone := [each.name for each in devices if each.name not in published]:
            return f"not published any more: {', '.join(gone)}"
        tainted = [
            f"{each.name}: {_taints(published[each.name])}" for each in devices if published[each.name].get("taints")
        ]
        return f"tainted meanwhile: {'; '.join(tainted)}" if tainted else None

    # -- one test ------------------------------------------------------------------------------------------------------

    async def _test(self, devices: Sequence[Device]) -> Row:
        shown = tuple(device.name for device in devices)
        name = f"smoke-{self._number}-{shown[0] if len(shown) == 1 else 'all'}"
        namespace, begun_s = self._namespace, time.monotonic()
        mig = devices[0].kind == "mig"
        claim = smoke_objects.claim(name, namespace, self._labels, [device.uuid for device in devices], mig=mig)
        command = smoke_objects.script(len(devices), self._asked.also)
        pod = smoke_objects.pod(
            name,
            namespace,
            self._labels,
            image=self._asked.image or smoke_objects.IMAGE,
            command=command,
            queue=self._asked.queue,
            deadline_s=int(self._asked.timeout_s) + 60,
        )
        failed = Row(devices=shown, result="failed", detail="")
        try:
            await self._client.create(_CLAIMS, claim, namespace)
            await self._client.create(_PODS, pod, namespace)
        except errors.ApiError as error:
            return replace(failed, detail=str(error))
        checked_s = begun_s
        waits = ""
        while True:
            try:
                seen = await self._client.get(_PODS, name, namespace)
            except errors.NotFound:
                return replace(failed, detail="its pod was deleted")
            ended = _ended(seen)
            if ended is not None:
                exit_code, message = ended
                found = verdict(message, {device.name: device.uuid for device in devices})
                ok = found.ok and exit_code == 0
                return Row(
                    devices=shown,
                    result="ok" if ok else "failed",
                    detail=found.detail if exit_code == 0 else f"exit code {exit_code}: {message[:200]}",
                    seconds=round(time.monotonic() - begun_s, 1),
                    bus_gb_s=found.bus_gb_s,
                )
            placed = bool((seen.get("spec") or {}).get("nodeName"))
            waits = "" if placed else await self._waits(name, shown[0]) or waits
            if not placed and time.monotonic() - checked_s > RECHECK_S:
                # A device that was tainted after it was found free: its pod would wait until the time is up.
                if why := await self._withdrawn(devices):
                    return replace(failed, detail=why)
                checked_s = time.monotonic()
            if time.monotonic() - begun_s > self._asked.timeout_s:
                return replace(
                    failed, detail=f"not finished within {self._asked.timeout_s:g} s: {waits or _standing(seen)}"
                )
            await asyncio.sleep(POLL_S)

    async def _waits(self, pod: str, device: str) -> str:
        """Why the pod's gang waits; each reason is told once, with the first device that it keeps. "" where it does not wait, or may not be read."""
        try:
            gang = await self._client.get(_GANGS, pod, self._namespace)
        except errors.ApiError:
            return ""
        found = line(gang, now=0.0)
        why = f"{found.reason}: {found.why}" if found.phase == "Waiting" else ""
        if why and why not in self._told:
            self._told.add(why)
            say(f"{device} waits: {why}", file=sys.stderr, flush=True)
        return why

    # -- removal -------------------------------------------------------------------------------------------------------

    async def _remove_older(self) -> None:
        """What runs that were killed left for this node: pods that have ended, and their claims."""
        label = f"{smoke_objects.NODE_LABEL}={self._labels[smoke_objects.NODE_LABEL]}"
        pods = (await self._client.list(_PODS, self._namespace, labels=label)).items
        ended = {each["metadata"]["labels"][smoke_objects.LABEL] for each in pods if _ended(each) is not None}
        going = {each["metadata"]["labels"][smoke_objects.LABEL] for each in pods if _ended(each) is None}
        for number in sorted(ended - going):
            await self._remove(f"{smoke_objects.LABEL}={number}")

    async def _remove(self, label: str) -> None:
        """Pods before claims, which wait for them."""
        for resource in (_PODS, _CLAIMS):
            with contextlib.suppress(errors.ApiError):
                for each in (await self._client.list(resource, self._namespace, labels=label)).items:
                    with contextlib.suppress(errors.NotFound):
                        await self._client.delete(resource, each["metadata"]["name"], self._namespace)


def _taints(device: Raw) -> str:
    return ", ".join(f"{taint['key']}={taint.get('value', '')}" for taint in device.get("taints") or ())


def _ended(pod: Raw) -> tuple[int, str] | None:
    """Exit code and termination message of its container; of a pod that ended without one, why."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        if (ended := (each.get("state") or {}).get("terminated")) is not None:
            return int(ended.get("exitCode", 0)), str(ended.get("message") or "")
    if status.get("phase") in {"Failed", "Succeeded"}:
        return 1, f"{status.get('reason') or status['phase']}: {status.get('message') or 'its container never ran'}"
    return None


def _standing(pod: Raw) -> str:
    """Where a pod is that does not get on."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        if (waiting := (each.get("state") or {}).get("waiting")) is not None and waiting.get(
            "reason"
        ) != "ContainerCreating":
            return f"{waiting.get('reason')}: {waiting.get('message') or ''}".rstrip(": ")
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") != "True":
            return f"{each.get('reason')}: {each.get('message') or ''}".rstrip(": ")
    return str(status.get("phase") or "Pending")


def _order(name: str) -> tuple[int, str]:
    digits = name.removeprefix("gpu-").partition("-")[0]
    return (int(digits) if digits.isdigit() else 0, name)


def _print(rows: Sequence[Row]) -> None:
    colours = {"ok": "green", "failed": "red"}
    columns = (
        Column(title="DEVICE", least=12),
        Column(title="RESULT"),
        Column(title="SECONDS", right=True, dispensable=1),
        Column(title="BUS GB/S", right=True, dispensable=2),
        Column(title="DETAIL", least=20, sentence=True),
    )
    cells = [
        [
            Cell(row.devices[0] if len(row.devices) == 1 else f"{len(row.devices)} GPUs"),
            Cell(row.result, colours.get(row.result, "")),
            Cell("" if row.seconds is None else f"{row.seconds:g}"),
            Cell("" if row.bus_gb_s is None else f"{row.bus_gb_s:g}"),
            Cell(row.detail),
        ]
        for row in rows
    ]
    printer.table(columns, cells)
