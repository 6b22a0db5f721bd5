"""`fairlead device drain | undrain`: keep new claims off a GPU, wait for those that have it or evict their pods, and give it back.

The mark stays when the command ends, is killed, or its time is over; `undrain` ends it. Claims with admin access only, as monitoring
has, are not waited for. Runs with the caller's rights.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import typer

from fairlead.api import foreign
from fairlead.cli import completion, reading
from fairlead.cli.gpus.published import Evictions, Holder, Say, devices_of, gpu_name, holders, slices_of, teller
from fairlead.cli.gpus.repair import NOT_FINISHED, OK
from fairlead.cli.listing import Listing, Row
from fairlead.cli.operate.drain_marks import DriverMarks, RuleMarks, drained, marks, served_rules
from fairlead.cli.options import LINE, Lines
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import OfCluster
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.flags import Form
from fairlead.kube.resources import (
    DEVICE_TAINT_RULE_VERSIONS,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
    raw,
)
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

POLL_S = 1.0
COLUMNS = (
    Column(title="NODE", least=12),
    Column(title="GPU"),
    Column(title="BY", least=8, dispensable=2),
    Column(title="SINCE", dispensable=1),
    Column(title="HOW", dispensable=3),
    Column(title="REASON", least=12, sentence=True),
)
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

    async def drain(self, drain: Literal["wait", "evict"], timeout_s: float, *, reason: str) -> int:
        deadline_s = self._clock() + timeout_s
        chosen = await marks(self._client, self._node, self._gpu)
        changed = await chosen.put(reason=reason, by=await reading.user(self._client))
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
        changed = rules is not None and await RuleMarks(self._client, rules, self._node, self._gpu).take()
        changed = changed or await DriverMarks(self._client, self._node, self._gpu).take()
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

    def _undo(self) -> str:
        return f"{reading.program()} device undrain {self._node}/{self._gpu}"


# -- commands ----------------------------------------------------------------------------------------------------------


def _node_and_gpu(text: str) -> tuple[str, str]:
    node, _, gpu = text.rpartition("/")
    name = gpu_name(gpu)
    if not node or name is None:
        raise ValueError(
            f"{text!r} is no GPU of a node: write hgx-h100-a/gpu-3 (of a MIG device, the GPU that it is part of)"
        )
    return node, name


Gpu = Annotated[
    tuple[str, str],
    Form(_node_and_gpu, "/".join),
    typer.Argument(
        metavar="NODE/GPU", help="Such as hgx-h100-a/gpu-3, or hgx-h100-a/3.", autocompletion=completion.gpus
    ),
]


@dataclass(frozen=True, kw_only=True)
class OfGpu(OfCluster):
    """One for a GPU of a node."""

    gpu: Gpu
    as_json: Lines = False

    def operate(self, work: Callable[[Operation], Awaitable[int]]) -> int:
        """Exit code 0 done, 1 it could not be, 3 something still holds it when the time is over."""
        node, gpu = self.gpu
        told = teller(node, gpu, as_json=self.as_json)

        async def connected(cluster: Cluster) -> int:
            try:
                return await work(Operation(cluster.client, node, gpu, told))
            except errors.Forbidden as error:
                raise NotReadError(
                    f"you may not do that: {error.message}; ask for the role fairlead-operator"
                ) from error

        try:
            return self.ask(connected)
        except KeyboardInterrupt:
            again = f"{reading.program()} device undrain {node}/{gpu}"
            say(f"it stays as it is; `{again}` ends a drain", file=sys.stderr)
            return 130


@dataclass(frozen=True, kw_only=True)
class Drain(OfGpu):
    """Give a GPU to no new claim, and wait until nothing has it. Exit code 0: it is empty; 1: failed; 3: still held."""

    mode: Annotated[
        Literal["wait", "evict"],
        typer.Option("--drain", help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait"
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait; it stays drained afterwards.")
    ] = 3600.0
    reason: Annotated[str, LINE, typer.Option(metavar="TEXT", help="Why, in one line, for `device list`.")] = ""
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which gangs hold it.")] = False

    def run(self) -> int:
        if self.dry_run:
            return self.operate(lambda it: it.look())
        return self.operate(lambda it: it.drain(self.mode, self.timeout_s, reason=self.reason))


@dataclass(frozen=True, kw_only=True)
class Undrain(OfGpu):
    """Give a drained GPU to claims again."""

    def run(self) -> int:
        return self.operate(lambda it: it.undrain())


@dataclass(frozen=True, kw_only=True)
class Drained(Listing):
    """List the GPUs that are drained."""

    kind: ClassVar[str] = "drained GPU"
    watches: ClassVar[tuple[Resource[Any], ...]] = (
        RESOURCE_SLICES,
        *(replace(DEVICE_TAINT_RULES, version=each) for each in DEVICE_TAINT_RULE_VERSIONS),
    )

    names: Annotated[tuple[str, ...], typer.Argument(metavar="[NODE/GPU]...", help="Only these.")] = ()

    def columns(self) -> Sequence[Column]:
        return COLUMNS

    async def rows(self, cluster: Cluster) -> list[Row]:
        fields = ("node", "gpu", "by", "since", "how", "reason")
        return [
            Row(
                name=f"{row['node']}/{row['gpu']}",
                reference=f"{row['node']}/{row['gpu']}",
                lines=[[Cell(str(row[key]) or "-") for key in fields]],
                value=row,
            )
            for row in await drained(cluster.client)
        ]

    def none(self) -> str:
        return "no GPU is drained"
