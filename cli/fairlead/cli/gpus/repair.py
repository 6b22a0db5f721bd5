"""`fairlead repair`: ask a node's driver to repair a GPU, evict what holds it if that is wanted, and show how far it is.

The driver does the work and remembers it (fairlead.api.repair); this may be killed and called again at any time, and then goes
on watching. Runs with the operator's rights: to list ResourceClaims, list and patch ResourceSlices and, to evict, to get pods
and create their evictions.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from fairlead.api import names
from fairlead.api import repair as api
from fairlead.cli.gpus.commands import Repair
from fairlead.cli.gpus.holders import Evictions, holders
from fairlead.cli.gpus.published import SLICES, ask, devices_of, slices_of, state_of
from fairlead.cli.printer import say
from fairlead.cli.views import printing, reading
from fairlead.cli.views.table import Cell, Column
from fairlead.kube.client import Client
from fairlead.kube.resources import RESOURCE_CLAIMS, Raw, raw
from fairlead.ui.reading.cluster import Cluster

POLL_S = 1.0
UNANSWERED_S = 30.0
OK, FAILED, NOT_FINISHED = 0, 1, 3
RUNBOOK = "docs/gpu-care.md, Repair"

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


class Say(Protocol):
    """Prints what happened: the text for people, the fields for programs."""

    def __call__(self, text: str, **fields: Any) -> None: ...


def repair(asked: Repair, node: str, device: str) -> int:
    """The exit code: 0 repaired (or taken back), 1 failed or refused, 3 not finished in time."""
    begun_s = time.monotonic()

    def told(text: str, **fields: Any) -> None:
        elapsed_s = time.monotonic() - begun_s
        if asked.as_json:
            known = {"node": node, "gpu": device, "elapsedSeconds": round(elapsed_s, 1)}
            say(json.dumps({**known, **(fields or {"message": text})}), flush=True)
        else:
            say(f"{elapsed_s:6.0f} s  {text}", flush=True)

    async def work(cluster: Cluster) -> int:
        operation = Operation(cluster.client, node, device, told)
        if asked.dry_run:
            return await operation.look(asked.drain)
        if asked.cancel:
            return await operation.cancel(asked.timeout_s)
        return await operation.run(asked.drain, asked.timeout_s)

    try:
        status, result = reading.run(work, kubeconfig=asked.kubeconfig, context=asked.context)
    except KeyboardInterrupt:
        again = f"{reading.program()} repair {node} {device}"
        say(
            f"the driver goes on with it; to watch, run `{again}` again, to take it back `{again} --cancel`",
            file=sys.stderr,
        )
        return 130
    return result if result is not None else status


class Operation:
    """One GPU of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        device: str,
        say: Say,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        self._client = client
        self._node = node
        self._device = device
        self._say = say
        self._sleep = sleep
        self._clock = clock

    async def run(self, drain: Literal["wait", "evict"], timeout_s: float) -> int:
        """Ask, unless it is under way already, and watch until it ended or the time is over."""
        deadline_s = self._clock() + timeout_s
        slices = await self._slices()
        self._check_known(slices)
        state = self._state(slices)
        if state is not None and state.phase in api.UNDER_WAY:
            self._say(f"{self._device} of {self._node} is being repaired already", phase=state.phase)
            number = state.id
        else:
            number = secrets.token_hex(8)
            await self._ask(slices, api.Request(id=number))
            self._say(f"asked the driver of {self._node} to repair {self._device}", phase="asked")
        evictions = Evictions(self._client, self._say, self._clock)
        shown: tuple[str, str] = "", ""
        asked_s = self._clock()
        while True:
            slices = await self._slices()
            state = self._state(slices)
            if state is not None and state.id == number:
                if (state.phase, state.message) != shown:
                    shown = state.phase, state.message
                    self._say_state(state)
                if state.phase not in api.UNDER_WAY:
                    return self._ended(state)
                if state.phase == "draining" and drain == "evict":
                    await evictions.step(self._node, state.together or (self._device,))
            elif state is not None and state.phase in api.UNDER_WAY:
                number = state.id  # another asked at the same moment
            else:
                await self._ask_again(slices, number)
                if self._clock() - asked_s > UNANSWERED_S:
                    asked_s = self._clock()
                    self._say(f"the driver has not answered yet; does it run on {self._node}?", phase="asked")
            if self._clock() >= deadline_s:
                self._say(
                    f"not finished within {timeout_s:g} s; it goes on: run the command again to watch, or with --cancel "
                    "to take it back while it drains",
                    phase="unfinished" if state is None else state.phase,
                )
                return NOT_FINISHED
            await self._sleep(POLL_S)

    async def cancel(self, timeout_s: float) -> int:
        deadline_s = self._clock() + timeout_s
        slices = await self._slices()
        self._check_known(slices)
        state = self._state(slices)
        if state is None or state.phase not in api.TAINTED:
            self._say(f"{self._device} of {self._node} is not being repaired", phase="none")
            return OK
        if state.phase != "draining":
            self._say(
                f"{self._device} is {state.phase}: only a repair that drains can be taken back; "
                + (
                    f"a repair that succeeds ends the taint: {RUNBOOK}"
                    if state.phase == "failed"
                    else "wait for its end"
                ),
                phase=state.phase,
            )
            return FAILED
        await self._ask(slices, api.Request(id=state.id, action="cancel"))
        number = state.id
        while self._clock() < deadline_s:
            state = self._state(await self._slices())
            if state is None or state.id != number or state.phase != "draining":
                gone = state is None or state.phase == "cancelled"
                self._say(
                    f"{self._device}: {'taken back' if gone else 'too late: ' + (state.phase if state else '')}",
                    phase="cancelled" if gone or state is None else state.phase,
                )
                return OK if gone else FAILED
            await self._sleep(POLL_S)
        self._say("the driver has not answered; does it run?", phase="unfinished")
        return NOT_FINISHED

    async def look(self, drain: Literal["wait", "evict"]) -> int:
        """What a repair would do, as far as the cluster shows; nothing is changed."""
        slices = await self._slices()
        devices = self._check_known(slices)
        held = holders((await self._client.list(raw(RESOURCE_CLAIMS))).items, self._node, {self._device})
        self._say(f"would be tainted: {', '.join(devices)}", devices=list(devices))
        then = "its pods would be evicted" if drain == "evict" else "it would be waited for"
        for each in held:
            self._say(f"{each}; {then}", claim=each.claim, pods=[name for name, _ in each.pods], drain=drain)
        if not held:
            self._say("no claim has it: it would be reset at once", drain=drain)
        self._say(
            "the driver adds the GPUs that have to be reset with it (NVLinks without NVSwitch), and refuses while processes run",
            dryRun=True,
        )
        return OK

    # -- the slice ---------------------------------------------------------------------------------------------------

    async def _slices(self) -> list[Raw]:
        return await slices_of(self._client, self._node)

    def _check_known(self, slices: list[Raw]) -> tuple[str, ...]:
        return devices_of(slices, self._node, self._device)

    def _state(self, slices: list[Raw]) -> api.State | None:
        return state_of(slices, self._device)

    async def _ask(self, slices: list[Raw], request: api.Request) -> None:
        await ask(self._client, slices, self._device, request)

    async def _ask_again(self, slices: list[Raw], number: str) -> None:
        """A slice that was deleted takes the request with it."""
        first = api.first_slice(slices)
        if first is None:
            return
        if self._device not in api.requests(first["metadata"].get("annotations") or {}):
            await self._ask(slices, api.Request(id=number))

    # -- what is said ------------------------------------------------------------------------------------------------

    def _say_state(self, state: api.State) -> None:
        others = [each for each in state.together if each != self._device]
        more = f" (together with {', '.join(others)})" if others and state.phase == "draining" else ""
        self._say(
            f"{state.phase}{more}{': ' + state.message if state.message else ''}",
            phase=state.phase,
            message=state.message,
            together=list(state.together),
            holders=list(state.holders),
        )

    def _ended(self, state: api.State) -> int:
        if state.phase in {"done", "cancelled"}:
            return OK if state.phase == "done" else FAILED
        if state.phase == "failed":
            self._say(
                f"{self._device} stays tainted and takes no claims; what to do: {RUNBOOK}", phase="failed", next=RUNBOOK
            )
        return FAILED


def listing(*, output: str, kubeconfig: Path | None, context: str | None) -> int:
    """The repairs of all nodes that are under way, that failed, or that ended within the last hour."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        by_node: dict[str, list[Raw]] = {}
        for each in (await cluster.client.list(SLICES, fields=f"spec.driver={names.DRIVER}")).items:
            by_node.setdefault(each["spec"].get("nodeName", ""), []).append(each)
        rows = []
        for node, slices in sorted(by_node.items()):
            first = api.first_slice(slices)
            states = {} if first is None else api.states(first["metadata"].get("annotations") or {})
            for device, state in sorted(states.items(), key=lambda pair: api.minor_of(pair[0]) or 0):
                rows.append(
                    {
                        "node": node,
                        "gpu": device,
                        "phase": state.phase,
                        "since": state.since,
                        "together": list(state.together),
                        "message": state.message,
                    }
                )
        return rows

    status, rows = reading.run(work, kubeconfig=kubeconfig, context=context)
    if rows is None:
        return status
    if output != "table":
        printing.structured(rows, output)
    elif not rows:
        say("no GPU is being repaired")
    else:
        columns = (
            Column(title="NODE", least=12),
            Column(title="GPU"),
            Column(title="PHASE"),
            Column(title="SINCE", dispensable=1),
            Column(title="MESSAGE", least=20, sentence=True),
        )
        colours = {"failed": "red", "done": "green"}
        printing.table(
            columns,
            [
                [
                    Cell(row["node"]),
                    Cell(row["gpu"]),
                    Cell(row["phase"], colours.get(row["phase"], "")),
                    Cell(row["since"]),
                    Cell(row["message"]),
                ]
                for row in rows
            ],
        )
    return 0
