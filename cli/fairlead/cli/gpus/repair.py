"""`fairlead repair`: ask a node's driver to repair a GPU, evict what holds it if that is wanted, and show how far it is.

The driver does the work and remembers it (fairlead.api.repair); this may be killed and called again at any time, and then goes
on watching. Runs with the operator's rights: to list ResourceClaims, list and patch ResourceSlices and, to evict, to get pods
and create their evictions.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fairlead.api import repair as api
from fairlead.cli import completion, printer, reading
from fairlead.cli.gpus.published import (
    Evictions,
    Say,
    ask,
    devices_of,
    gpu_name,
    holders,
    slices_of,
    state_of,
    states,
    teller,
)
from fairlead.cli.options import Lines
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.kube.client import Client
from fairlead.kube.resources import RESOURCE_CLAIMS, Raw, raw
from fairlead.ui.reading.cluster import Cluster

POLL_S = 1.0
UNANSWERED_S = 30.0
OK, FAILED, NOT_FINISHED = 0, 1, 3
RUNBOOK = "docs/gpu-care.md, Repair"
COLUMNS = (
    Column(title="NODE", least=12),
    Column(title="GPU"),
    Column(title="PHASE"),
    Column(title="SINCE", dispensable=1),
    Column(title="MESSAGE", least=20, sentence=True),
)

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Repair(Shown):
    """Repair a GPU: taint, drain, reset, verify, untaint. Exit code 0: it is well; 1: it stays tainted; 3: not finished."""

    node: Annotated[
        str | None, typer.Argument(help="The node.", show_default=False, autocompletion=completion.nodes)
    ] = None
    gpu: Annotated[str | None, typer.Argument(help="The GPU, such as gpu-3 or 3.", show_default=False)] = None
    drain: Annotated[
        Literal["wait", "evict"],
        typer.Option(help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait"
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to watch; the repair goes on afterwards.")
    ] = 3600.0
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be drained.")] = False
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back while it still drains.")] = False
    all_repairs: Annotated[bool, typer.Option("--list", help="Instead: list the repairs of all nodes.")] = False
    as_json: Lines = False

    def run(self) -> int:
        if self.all_repairs:
            if self.node is not None or self.gpu is not None:
                raise typer.BadParameter("lists the repairs of all nodes: leave NODE and GPU out", param_hint="--list")
            self._list()
            return OK
        if self.node is None or self.gpu is None:
            raise typer.BadParameter("name both, as `fairlead repair NODE gpu-3`; or --list", param_hint="NODE GPU")
        gpu = gpu_name(self.gpu)
        if gpu is None:
            raise typer.BadParameter(
                f"{self.gpu!r} is no GPU: write gpu-3 or 3 (of a MIG device, the GPU that it is part of)",
                param_hint="GPU",
            )
        if self.dry_run and self.cancel:
            raise typer.BadParameter("goes without --dry-run", param_hint="--cancel")
        try:
            return self._repair(self.node, gpu)
        except KeyboardInterrupt:
            again = f"{reading.program()} repair {self.node} {gpu}"
            say(
                f"the driver goes on with it; to watch, run `{again}` again, to take it back `{again} --cancel`",
                file=sys.stderr,
            )
            return 130

    def _repair(self, node: str, gpu: str) -> int:
        told = teller(node, gpu, as_json=self.as_json)

        async def work(cluster: Cluster) -> int:
            operation = Operation(cluster.client, node, gpu, told)
            if self.dry_run:
                return await operation.look(self.drain)
            if self.cancel:
                return await operation.cancel(self.timeout_s)
            return await operation.run(self.drain, self.timeout_s)

        return self.ask(work)

    def _list(self) -> None:
        """The repairs of all nodes that are under way, that failed, or that ended within the last hour."""

        async def work(cluster: Cluster) -> list[tuple[str, str, api.State]]:
            return [each async for each in states(cluster.client)]

        found, output = self.ask(work), "json" if self.as_json else self.output
        if output != "table":
            rows = [
                {
                    "node": node,
                    "gpu": gpu,
                    "phase": state.phase,
                    "since": state.since,
                    "together": list(state.together),
                    "message": state.message,
                }
                for node, gpu, state in found
            ]
            printer.structured(rows, output)
        elif not found:
            say("no GPU is being repaired")
        else:
            colours = {"failed": "red", "done": "green"}
            cells = [
                (
                    Cell(node),
                    Cell(gpu),
                    Cell(state.phase, colours.get(state.phase, "")),
                    Cell(state.since),
                    Cell(state.message),
                )
                for node, gpu, state in found
            ]
            printer.table(COLUMNS, cells)


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
        devices_of(slices, self._node, self._device)
        state = self._state(slices)
        if state is not None and state.phase in api.UNDER_WAY:
            self._say(f"{self._device} of {self._node} is being repaired already", phase=state.phase)
            number = state.id
        else:
            number = secrets.token_hex(8)
            await ask(self._client, slices, self._device, api.Request(id=number))
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
                await ask(self._client, slices, self._device, api.Request(id=number), again=True)
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
        devices_of(slices, self._node, self._device)
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
        await ask(self._client, slices, self._device, api.Request(id=state.id, action="cancel"))
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
        devices = devices_of(slices, self._node, self._device)
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

    def _state(self, slices: list[Raw]) -> api.State | None:
        return state_of(slices, self._device)

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
