"""What keeps new claims off a GPU: DeviceTaintRules where the cluster serves them, else a taint that the node's driver publishes.

Rules need no driver that answers, and are seen by Kubernetes itself: one for each device that the node publishes of the GPU, with a
name made of its device, so that two drains of it write the same. Where no version of them is served, the request goes the way of
`fairlead repair` (fairlead.api.repair): an annotation on the node's slice, which the driver takes over.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from fairlead.api import names
from fairlead.api import repair as api
from fairlead.cli.gpus.published import ask, belongs, devices_of, slices_of, state_of, states
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import DEVICE_TAINT_RULE_VERSIONS, DEVICE_TAINT_RULES, Raw, Resource, raw
from fairlead.ui.reading.cluster import NotReadError, not_read

LABEL = f"{names.API_GROUP}/drained"
REASON = f"{names.API_GROUP}/drain-reason"
BY = f"{names.API_GROUP}/drained-by"
TAINT = api.DRAIN_TAINT
ANSWER_S = 30.0
POLL_S = 0.5

Sleep = Callable[[float], Awaitable[None]]


class Marks(Protocol):
    """How one GPU is marked as drained. `put` and `take` return whether anything changed; done twice they change nothing."""

    how: str

    async def put(self, *, reason: str, by: str) -> bool: ...
    async def take(self) -> bool: ...


class RuleMarks:
    def __init__(self, client: Client, rules: Resource[Raw], node: str, gpu: str) -> None:
        self._client = client
        self._rules = rules
        self._node = node
        self._gpu = gpu
        self.how = "DeviceTaintRule"

    async def put(self, *, reason: str, by: str) -> bool:
        known = {_device(each) for each in await self._mine()}
        devices = set(devices_of(await slices_of(self._client, self._node), self._node, self._gpu))
        changed = False
        for device in sorted(devices - known):
            try:
                await self._client.create(self._rules, self._rule(device, reason, by))
                changed = True
            except errors.AlreadyExists:
                continue  # by another at the same moment
            except errors.ApiError as error:
                raise not_read(error, "create", self._rules, None) from error
        return changed

    async def take(self) -> bool:
        changed = False
        for rule in await self._mine():
            try:
                await self._client.delete(self._rules, rule["metadata"]["name"], uid=rule["metadata"]["uid"])
                changed = True
            except (errors.NotFound, errors.Conflict):
                continue
            except errors.ApiError as error:
                raise not_read(error, "delete", self._rules, None) from error
        return changed

    async def _mine(self) -> list[Raw]:
        try:
            found = (await self._client.list(self._rules, labels=LABEL)).items
        except errors.ApiError as error:
            raise not_read(error, "list", self._rules, None) from error
        return [each for each in found if _node(each) == self._node and belongs(_device(each), {self._gpu})]

    def _rule(self, device: str, reason: str, by: str) -> dict[str, Any]:
        digest = hashlib.sha256(f"{names.DRIVER}/{self._node}/{device}".encode()).hexdigest()[:20]
        notes = {key: value for key, value in ((REASON, reason), (BY, by)) if value}
        return {
            "metadata": {
                "name": f"fairlead-drain-{digest}",
                "labels": {LABEL: "true", names.MANAGED_BY: names.MANAGED_BY_VALUE},
                "annotations": notes,
            },
            "spec": {
                "deviceSelector": {"driver": names.DRIVER, "pool": self._node, "device": device},
                "taint": {"key": TAINT, "effect": "NoSchedule"},
            },
        }


class DriverMarks:
    def __init__(self, client: Client, node: str, gpu: str, *, sleep: Sleep = asyncio.sleep) -> None:
        self._client = client
        self._node = node
        self._gpu = gpu
        self._sleep = sleep
        self.how = "the node's driver"

    async def put(self, *, reason: str, by: str) -> bool:
        """The driver keeps neither reason nor name."""
        slices = await slices_of(self._client, self._node)
        devices_of(slices, self._node, self._gpu)
        state = state_of(slices, self._gpu)
        if state is not None and state.phase == "drained":
            return False
        if state is not None and state.phase in api.TAINTED:
            raise NotReadError(
                f"{self._gpu} of node {self._node} is {state.phase} in a repair, and takes no new claims as it is: "
                "see `fairlead repair --list`"
            )
        number = secrets.token_hex(8)
        await self._answer(api.Request(id=number, action="drain"), lambda seen: seen.phase == "drained")
        return True

    async def take(self) -> bool:
        slices = await slices_of(self._client, self._node)
        devices_of(slices, self._node, self._gpu)
        state = state_of(slices, self._gpu)
        if state is None or state.phase != "drained":
            return False
        await self._answer(api.Request(id=state.id, action="cancel"), lambda seen: seen.phase != "drained")
        return True

    async def _answer(self, request: api.Request, done: Callable[[api.State], bool]) -> None:
        """Until the driver has done it. A slice that was replaced meanwhile is asked again. Raises NotReadError."""
        for _ in range(int(ANSWER_S / POLL_S)):
            slices = await slices_of(self._client, self._node)
            state = state_of(slices, self._gpu)
            if state is not None and (state.id == request.id or state.phase == "drained") and done(state):
                return
            if state is None and request.action == "cancel":
                return
            if state is not None and state.id == request.id and state.phase == "refused":
                raise NotReadError(f"the driver of node {self._node} refuses: {state.message}")
            await ask(self._client, slices, self._gpu, request, again=True)
            await self._sleep(POLL_S)
        raise NotReadError(
            f"the driver of node {self._node} has not answered within {ANSWER_S:.0f} s: does it run, and is it of this version? "
            "It does it as soon as it answers; to take that back: the same command with undrain"
        )


async def marks(client: Client, node: str, gpu: str) -> Marks:
    """Marks by taint rules, in the version that the cluster serves, else by the driver. Raises NotReadError."""
    rules = await served_rules(client)
    return DriverMarks(client, node, gpu) if rules is None else RuleMarks(client, rules, node, gpu)


async def served_rules(client: Client) -> Resource[Raw] | None:
    for version in DEVICE_TAINT_RULE_VERSIONS:
        rules = dataclasses.replace(raw(DEVICE_TAINT_RULES), version=version)
        try:
            await client.list(rules, labels=LABEL)
        except errors.NotFound:
            continue
        except errors.ApiError as error:
            raise not_read(error, "list", rules, None) from error
        return rules
    return None


async def drained(client: Client) -> list[dict[str, Any]]:
    """All that is drained: node, gpu, how, by, reason, since. Raises NotReadError."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    rules = await served_rules(client)
    for rule in [] if rules is None else (await client.list(rules, labels=LABEL)).items:
        notes: Mapping[str, str] = rule["metadata"].get("annotations") or {}
        node, gpu = _node(rule), _device(rule).partition("-mig-")[0]
        row = {
            "node": node,
            "gpu": gpu,
            "how": "DeviceTaintRule",
            "by": notes.get(BY, ""),
            "reason": notes.get(REASON, ""),
            "since": rule["metadata"].get("creationTimestamp", ""),
        }
        rows.setdefault((node, gpu), row)
    async for node, gpu, state in states(client):
        if state.phase == "drained":
            row = {"node": node, "gpu": gpu, "how": "driver", "by": "", "reason": "", "since": state.since}
            rows.setdefault((node, gpu), row)
    return [rows[key] for key in sorted(rows, key=lambda key: (key[0], api.minor_of(key[1]) or 0))]


def _node(rule: Raw) -> str:
    return _selected(rule, "pool")


def _device(rule: Raw) -> str:
    return _selected(rule, "device")


def _selected(rule: Raw, field: str) -> str:
    return str(((rule.get("spec") or {}).get("deviceSelector") or {}).get(field, ""))
