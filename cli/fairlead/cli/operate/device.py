"""`fairlead device drain | undrain`: keep new claims off a GPU, wait for those that have it or evict their pods, and give it back.

The mark stays when the command ends, is killed, or its time is over; `undrain` ends it. Claims with admin access only, as monitoring
has, are not waited for. Runs with the caller's rights.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from fairlead.api import foreign
from fairlead.cli.gpus.holders import Evictions, Holder, holders
from fairlead.cli.gpus.published import devices_of, slices_of
from fairlead.cli.gpus.repair import NOT_FINISHED, OK, Say
from fairlead.cli.operate.commands import OfGpu
from fairlead.cli.operate.drain_marks import DriverMarks, RuleMarks, drained, marks, served_rules
from fairlead.cli.printer import say
from fairlead.cli.views import printing, reading
from fairlead.cli.views.table import Cell, Column
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, SELF_SUBJECT_REVIEWS, raw
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

POLL_S = 1.0
Drain = Literal["wait", "evict"]
Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


class Operation:
    """One GPU of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        gpu: str,
        say: Say,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        self._client = client
        self._node = node
        self._gpu = gpu
        self._say = say
        self._sleep = sleep
        self._clock = clock
        self._gangs: dict[str, str] = {}  # by UID of a pod

    async def look(self) -> int:
        """What a drain would meet; nothing is changed."""
        devices = devices_of(await slices_of(self._client, self._node), self._node, self._gpu)
        self._say(f"would be tainted: {', '.join(devices)}", devices=list(devices), dryRun=True)
        if not await self._say_holders(await self._held(), ""):
            self._say(f"nothing has {self._gpu} of {self._node}", phase="empty")
        return OK

    async def drain(self, drain: Drain, timeout_s: float, *, reason: str) -> int:
        deadline_s = self._clock() + timeout_s
        chosen = await marks(self._client, self._node, self._gpu)
        changed = await chosen.put(reason=reason, by=await self._user())
        now = "is given to no new claim from now on" if changed else "was drained already"
        self._say(f"{self._gpu} of {self._node} {now} ({chosen.how})", phase="drained", changed=changed)
        evictions = Evictions(self._client, self._say, self._clock, admin=False)
        shown = ""
        while True:
            held = await self._held()
            shown = await self._say_holders(held, shown)
            if not held:
                self._say(f"nothing has {self._gpu}; `{self._undo()}` gives it back", phase="empty")
                return OK
            if self._clock() >= deadline_s:
                self._say(
                    f"{len(held)} claim{'s' if len(held) > 1 else ''} still {'have' if len(held) > 1 else 'has'} it after {timeout_s:g} s; it stays drained: run the "
                    f"command again to wait, with --drain evict to evict, or `{self._undo()}`",
                    phase="unfinished",
                )
                return NOT_FINISHED
            if drain == "evict":
                await evictions.step(self._node, (self._gpu,))
            await self._sleep(POLL_S)
            await chosen.put(reason=reason, by="")  # of devices that were published since

    async def undrain(self) -> int:
        """Ends both kinds of marks: the cluster may serve rules since an upgrade."""
        rules = await served_rules(self._client)
        changed = False if rules is None else await RuleMarks(self._client, rules, self._node, self._gpu).take()
        if not changed or rules is None:
            changed = await DriverMarks(self._client, self._node, self._gpu).take() or changed
        what = "is given to claims again" if changed else "is not drained"
        self._say(f"{self._gpu} of {self._node} {what}", phase="given" if changed else "none", changed=changed)
        return OK

    # -- holders -----------------------------------------------------------------------------------------------------

    async def _held(self) -> list[Holder]:
        try:
            claims = (await self._client.list(raw(RESOURCE_CLAIMS))).items
        except errors.ApiError as error:
            raise not_read(error, "list", RESOURCE_CLAIMS, None) from error
        return holders(claims, self._node, {self._gpu}, admin=False)

    async def _say_holders(self, held: list[Holder], shown: str) -> str:
        """A line for each gang, where they are others than `shown`; returns what is shown now."""
        by_gang: dict[str, list[Holder]] = {}
        for each in held:
            for gang in await self._gangs_of(each) or {f"no pod (claim {each.claim})"}:
                by_gang.setdefault(gang, []).append(each)
        text = "\n".join(f"{gang}: {'; '.join(map(str, found))}" for gang, found in sorted(by_gang.items()))
        if text != shown:
            for gang, found in sorted(by_gang.items()):
                devices = sorted({device for each in found for device in each.devices})
                pods = sorted({f"{each.claim.partition('/')[0]}/{name}" for each in found for name, _ in each.pods})
                what = gang if gang.startswith("no pod") else f"gang {gang}"
                self._say(
                    f"{what} holds {', '.join(devices)}" + (f": {', '.join(pods)}" if pods else ""),
                    phase="held",
                    gang=gang,
                    devices=devices,
                    pods=pods,
                )
        return text

    async def _gangs_of(self, held: Holder) -> set[str]:
        """The gangs of pods, as namespace/name; a pod whose annotations may not be read, or that is gone, stands for itself."""
        namespace = held.claim.partition("/")[0]
        for name, uid in held.pods:
            if uid not in self._gangs:
                self._gangs[uid] = f"{namespace}/{await self._gang(namespace, name)}"
        return {self._gangs[uid] for _, uid in held.pods}

    async def _gang(self, namespace: str, pod: str) -> str:
        try:
            found = await self._client.get(raw(PODS), pod, namespace)
        except errors.ApiError:
            return pod
        meta = found["metadata"]
        group = ((found.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        return foreign.gang_name(meta.get("annotations") or {}, meta.get("labels") or {}, group) or pod

    async def _user(self) -> str:
        try:
            seen = await self._client.create(SELF_SUBJECT_REVIEWS, {})
        except errors.ApiError:
            return ""
        return str(((seen.get("status") or {}).get("userInfo") or {}).get("username") or "")

    def _undo(self) -> str:
        return f"{reading.program()} device undrain {self._node}/{self._gpu}"


def run(asked: OfGpu, work: Callable[[Operation], Awaitable[int]]) -> int:
    """The exit code: 0 done, 1 it could not be, 3 something still holds it when the time is over."""
    (node, gpu), begun_s = asked.gpu, time.monotonic()

    def told(text: str, **fields: Any) -> None:
        elapsed_s = time.monotonic() - begun_s
        if asked.as_json:
            known = {"node": node, "gpu": gpu, "elapsedSeconds": round(elapsed_s, 1), "message": text}
            say(json.dumps(known | fields), flush=True)
        else:
            say(f"{elapsed_s:6.0f} s  {text}", flush=True)

    async def connected(cluster: Cluster) -> int:
        try:
            return await work(Operation(cluster.client, node, gpu, told))
        except errors.Forbidden as error:
            raise NotReadError(f"you may not do that: {error.message}; ask for the role fairlead-operator") from error

    try:
        status, result = reading.run(connected, kubeconfig=asked.kubeconfig, context=asked.context)
    except KeyboardInterrupt:
        again = f"{reading.program()} device undrain {node}/{gpu}"
        say(f"it stays as it is; `{again}` ends a drain", file=sys.stderr)
        return 130
    return status if result is None else result


def listing(*, output: str, kubeconfig: Path | None, context: str | None) -> int:
    """All GPUs that are drained."""
    status, rows = reading.run(lambda cluster: drained(cluster.client), kubeconfig=kubeconfig, context=context)
    if rows is None:
        return status
    if output != "table":
        printing.structured(rows, output)
    elif not rows:
        say("no GPU is drained")
    else:
        columns = (
            Column(title="NODE", least=12),
            Column(title="GPU"),
            Column(title="BY", least=8, dispensable=2),
            Column(title="SINCE", dispensable=1),
            Column(title="HOW", dispensable=3),
            Column(title="REASON", least=12, sentence=True),
        )
        printing.table(
            columns,
            [[Cell(str(row[key]) or "-") for key in ("node", "gpu", "by", "since", "how", "reason")] for row in rows],
        )
    return OK
