"""A cluster for the pages: the lists of an apiserver, made up, and a client that answers them; also refused, or not at all.

Nodes have eight GPUs in two NVLink islands; every fifth node has MIG-capable GPUs, one of them cut; some GPUs are tainted, idle,
or starting. Gangs run on what is held, and `waiting` more wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import html
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp

from fairlead.api import names
from fairlead.engine.explain.explanation import explanation
from fairlead.engine.types.reasons import Code, Holder, Reason
from fairlead.evidence.device_usage import DeviceUsage
from fairlead.kube import errors, timestamps
from fairlead.kube.listing import Listing
from fairlead.kube.nulls import convert
from fairlead.kube.resources import Raw, Resource
from fairlead.kube.watching import WatchEvent
from fairlead.ui.reading.computing import Computing
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.reading.source import Source
from fairlead.ui.reading.watched import WatchedSource
from fairlead.ui.serve.app import serve
from tests.support.engine.objects import claim_spec, device_request, gpu, mig_gpu, slice_of
from tests.support.kube import VirtualTime, settle

NOW = 1_800_000_000.0
GPUS = 8
Lists = dict[str, list[Raw]]
REASON = Reason(
    code=Code.NO_DEVICES,
    message="8 wanted, 3 free",
    advice="wait until gangs end",
    could_ever_fit=True,
    holders=(Holder(gang="team-0/run-0", queue="queue-0", devices=8), Holder(gang="", queue="", devices=2)),
)


def empty() -> Lists:
    kinds = ("events", "gangs", "pods", "queues", "resourceclaims", "nodes", "resourceslices", "deviceclasses")
    return {kind: [] for kind in kinds}


def a_cluster(nodes: int = 6, *, waiting: int = 4, queues: int = 5, mig_every: int = 5) -> Lists:
    found = empty()
    found["deviceclasses"] = [{"metadata": {"name": names.GPU_CLASS}, "spec": {}}]
    found["queues"] = [
        queue("all", deserved=nodes * GPUS),
        *(queue(f"queue-{at}", parent="all") for at in range(queues)),
    ]
    for number in range(nodes):
        _add_node(found, number, queues=queues, mig=mig_every > 0 and number % mig_every == mig_every - 1)
    for number in range(waiting):
        found["gangs"].append(
            gang(
                f"wait-{number:05}",
                f"team-{number % queues}",
                queue=f"queue-{number % queues}",
                position=number + 1,
                why=explanation(REASON),
                forecast={
                    "p50": timestamps.seconds(NOW + 600),
                    "p90": timestamps.seconds(NOW + 3600),
                    "because": "32 samples",
                    "asOf": timestamps.seconds(NOW - 30),
                },
            )
        )
    return found


def _add_node(found: Lists, number: int, *, queues: int, mig: bool) -> None:
    name = f"node-{number:03}"
    found["nodes"].append(node(name, ready=number % 97 != 13))
    tainted: dict[str, Any] = {"taints": [{"key": f"{names.DRIVER}/xid", "value": "79", "effect": "NoExecute"}]}
    if mig:
        made = [mig_gpu(at) for at in range(GPUS)]
        found["resourceslices"] += slice_of(
            name, [each for devices, _ in made for each in devices], counters=[sets for _, sets in made]
        )
    else:
        devices = [
            gpu(at, island=at // 4, **(tainted if (number, at) in {(1, 7), (61, 3)} else {})) for at in range(GPUS)
        ]
        found["resourceslices"] += slice_of(name, devices)
    team = number % queues
    if mig:
        _hold(found, f"mig-{number}", team, name, ["gpu-0-mig-3g-40gb-4", "gpu-0-mig-1g-10gb-0", "gpu-1"])
    elif number % 7 == 3:
        _hold(found, f"run-{number}", team, name, [f"gpu-{at}" for at in range(4)], phase="Pending")
    elif number % 7 != 5:
        _hold(
            found,
            f"run-{number}",
            team,
            name,
            [f"gpu-{at}" for at in range(8 if number % 3 == 0 else 6)],
            idle=number % 7 == 2,
        )


def _hold(
    found: Lists, name: str, team: int, on: str, devices: Sequence[str], *, phase: str = "Running", idle: bool = False
) -> None:
    """A gang whose pods hold a device each."""
    namespace = f"team-{team}"
    running = phase == "Running"
    found["gangs"].append(
        gang(
            name,
            namespace,
            queue=f"queue-{team}",
            size=len(devices),
            phase="Running" if running else "Admitted",
            nodes=[on],
            ready=len(devices) if running else 0,
        )
    )
    for at, device in enumerate(devices):
        made = pod(f"{name}-{at}", namespace, gang=name, node=on, phase=phase, claim=f"{name}-{at}-gpu")
        found["pods"].append(made)
        found["resourceclaims"].append(claim(f"{name}-{at}-gpu", namespace, made, on, device, idle=idle))


def node(name: str, *, ready: bool = True) -> Raw:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(name: str, namespace: str, *, gang: str, node: str, phase: str, claim: str) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "annotations": {names.GANG: gang},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
        "status": {"phase": phase},
    }


def claim(name: str, namespace: str, holder: Raw, node: str, device: str, *, idle: bool = False) -> Raw:
    result = {"request": "r0", "driver": names.DRIVER, "pool": node, "device": device}
    usage = DeviceUsage(
        state="Idle" if idle else "Busy",
        since_s=NOW - 3600,
        sampled_at_s=NOW - 10,
        utilization_percent=0 if idle else 90,
    )
    said = [{"driver": names.DRIVER, "pool": node, "device": device, "data": usage.to_json()}]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": claim_spec(device_request()),
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "allocationTimestamp": timestamps.seconds(NOW - 800),
            },
            "reservedFor": [{"resource": "pods", "name": holder["metadata"]["name"], "uid": holder["metadata"]["uid"]}],
            "devices": said,
        },
    }


def gang(name: str, namespace: str, *, phase: str = "Waiting", size: int = 8, ready: int = 0, **status: Any) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "creationTimestamp": timestamps.seconds(NOW - 900),
        },
        "spec": {"size": size},
        "status": {
            "phase": phase,
            "reason": "NoDevices" if phase == "Waiting" else "MembersRun",
            "members": size,
            "ready": ready,
            **status,
        },
    }


def event(gang: Raw, reason: str, message: str, *, ago_s: float = 60.0, count: int = 1, warning: bool = False) -> Raw:
    meta = gang["metadata"]
    return {
        "metadata": {"name": f"{meta['name']}.{reason}", "namespace": meta["namespace"]},
        "involvedObject": {"kind": "Gang", "namespace": meta["namespace"], "name": meta["name"]},
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": timestamps.seconds(NOW - ago_s),
    }


def queue(name: str, *, parent: str | None = None, deserved: int = 8, used: int = 10) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {"flavors": [{"flavor": "h100", "deserved": deserved, "limit": 4 * deserved}]}
        | ({"parent": parent} if parent else {}),
        "status": {
            "running": 2,
            "waiting": 1,
            "usage": [{"flavor": "h100", "allocated": used, "demand": used + 6, "fairShare": deserved + 1}],
        },
    }


class Apiserver:
    """A client that answers lists and watches. `refused`: plurals that may not be listed; `away`: nothing answers. Counts the lists."""

    def __init__(self, lists: Lists, *, refused: Sequence[str] = (), own: str | None = None) -> None:
        self.lists = lists
        self.version = 1
        for number, raw in enumerate((raw for found in lists.values() for raw in found), 2):
            raw["metadata"]["resourceVersion"] = str(number)
            raw["metadata"].setdefault("uid", f"uid-{number}")
            self.version = number
        self._watches: dict[str, list[asyncio.Queue[tuple[str, Raw] | None]]] = {}
        self.refused = set(refused)
        self.own = own  # the namespace in which everything may be listed
        self.away = False
        self.asked = 0

    async def list(
        self, resource: Resource[Any], namespace: str | None = None, *, each: Any = None, **_: Any
    ) -> Listing[Any]:
        self.asked += 1
        if self.away:
            raise errors.Unreachable("connection refused")
        if resource.plural in self.refused and (namespace is None or namespace != self.own):
            raise errors.Forbidden("forbidden")
        items = [
            raw if resource.type is dict else convert(raw, resource.type)
            for raw in self.lists[resource.plural]
            if namespace is None or raw["metadata"].get("namespace") == namespace
        ]
        for item in items if each is not None else ():
            each(item)
        return Listing(items=[] if each is not None else items, resource_version=str(self.version))

    async def watch(
        self, resource: Resource[Any], namespace: str | None = None, **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        if self.away:
            raise errors.Unreachable("connection refused")
        changes: asyncio.Queue[tuple[str, Raw] | None] = asyncio.Queue()
        self._watches.setdefault(resource.plural, []).append(changes)
        try:
            while (change := await changes.get()) is not None:
                kind, raw = change
                yield WatchEvent(kind, raw if resource.type is dict else convert(raw, resource.type))
            raise errors.Unreachable("connection reset")
        finally:
            self._watches[resource.plural].remove(changes)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        if self.away:
            raise errors.Unreachable("connection refused")
        return b"{}"

    def put(self, plural: str, raw: Raw) -> Raw:
        """Writes an object, new or changed; watches see it."""
        self.version += 1
        meta = raw["metadata"] | {"resourceVersion": str(self.version)}
        meta.setdefault("uid", f"uid-{self.version}")
        written = {**raw, "metadata": meta}
        found = self.lists[plural]
        at = next((at for at, each in enumerate(found) if _key(each) == _key(raw)), None)
        if at is None:
            found.append(written)
        else:
            found[at] = written
        self._tell(plural, "ADDED" if at is None else "MODIFIED", written)
        return written

    def delete(self, plural: str, raw: Raw) -> None:
        self.version += 1
        self.lists[plural] = [each for each in self.lists[plural] if _key(each) != _key(raw)]
        self._tell(plural, "DELETED", {**raw, "metadata": raw["metadata"] | {"resourceVersion": str(self.version)}})

    def go(self) -> None:
        """Away, with every watch that is open."""
        self.away = True
        for watches in self._watches.values():
            for each in watches:
                each.put_nowait(None)

    def _tell(self, plural: str, kind: str, raw: Raw) -> None:
        for each in self._watches.get(plural, ()):
            each.put_nowait((kind, raw))


def _key(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


class Times:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def watched(apiserver: Apiserver, time: VirtualTime | None = None) -> AsyncIterator[WatchedSource]:
    """Runs inside the block, in virtual time, which begins at `NOW`."""
    at = time or VirtualTime(NOW)
    client: Any = apiserver
    made = WatchedSource(client, clock=at.clock, wall=at.clock, sleep=at.sleep)
    task = asyncio.create_task(made.run())
    try:
        await settle()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def source(apiserver: Apiserver, times: Times | None = None) -> LiveSource:
    at = times or Times()
    client: Any = apiserver
    return LiveSource(client, namespace=apiserver.own or "default", clock=at, wall=at)


class Reader:
    """What a browser gets: status, headers, text."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.address = address

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> tuple[int, Mapping[str, str], str]:
        """As a form of this server's own page sends it."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        own = {"Origin": self.address.rstrip("/"), "Sec-Fetch-Site": "same-origin", **named}
        async with self.session.post(self.address.rstrip("/") + path, data=fields, headers=own) as answer:
            return answer.status, answer.headers, await answer.text()

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method, self.address.rstrip("/") + path, headers=named, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.text()

    @contextlib.asynccontextmanager
    async def follow(self, stream: str, **headers: str) -> AsyncIterator[Following]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.address.rstrip("/") + stream, headers=named) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield Following(answer)


@dataclasses.dataclass
class Told:
    """An event of a stream. `parts`: what takes the place of which element, by id."""

    revision: str
    retry: str
    parts: dict[str, str]
    text: str


class Following:
    """A live page's stream, as a browser reads it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.heartbeats = 0
        self._rest = ""

    async def next(self, timeout_s: float = 10.0) -> Told:
        async with asyncio.timeout(timeout_s):
            while True:
                block, found, rest = self._rest.partition("\n\n")
                if not found:
                    data = await self.answer.content.readany()
                    if not data:
                        raise EOFError
                    self._rest += data.decode()
                    continue
                self._rest = rest
                if block.startswith(":"):
                    self.heartbeats += 1
                    continue
                return _told(block)

    async def ended(self, timeout_s: float = 10.0) -> None:
        with contextlib.suppress(EOFError):
            while True:
                await self.next(timeout_s)


def _told(block: str) -> Told:
    fields: dict[str, list[str]] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        fields.setdefault(name, []).append(value)
    text = "\n".join(fields.get("data", []))
    parts = re.findall(
        r'<hx-partial hx-target="#([a-z0-9-]+)" hx-swap="outerMorph">(.*?)</hx-partial>', text, re.DOTALL
    )
    return Told("".join(fields.get("id", [])), "".join(fields.get("retry", [])), dict(parts), text)


def stream_of(page: str) -> str:
    """The address of a page's stream."""
    found = re.search(r'hx-sse:connect="([^"]+)"', page)
    assert found is not None, "the page is not live"
    return html.unescape(found[1])


@contextlib.asynccontextmanager
async def reader(
    given: Source, ledger: Ledger | None = None, computing: Computing | None = None
) -> AsyncIterator[Reader]:
    async with serve(given, port=0, ledger=ledger, computing=computing) as address, aiohttp.ClientSession() as session:
        yield Reader(session, address)
