"""The controller's rim on the sandbox: a real apiserver, claim controller, scheduler, kubelets and drivers; no webhook.

Pods are created as the webhook would leave them: gated, with their gang annotated, and, in a bench that is `named`, with claims
named in their spec wherever the template exists. `Bench` starts controllers in this
process, and kills them: a killed one writes nothing more, not even to clean up. `Watchdog` sees every change of every claim.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import claim_sources, legacy, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.controller import app, term
from fairlead.controller.app import ControllerOptions
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.cycle import Cycle
from fairlead.history.recording.compact import lines, side_by_side
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from fairlead.kube import core, errors, resource, resources
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import Raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from tests.support.kubernetes import of_this_run
from tests.support.tasks import drivers

NAMESPACE = "ml"


class Life:
    """How long a controller lives: it dies at its `writes`-th write to claims and pods, before or after it arrives.

    `allocations`: only writes to claims' statuses count.
    """

    def __init__(self, writes: int | None = None, *, after: bool = False, allocations: bool = False) -> None:
        self.left = writes
        self.allocations = allocations
        self.after = after
        self.dead = False
        self.done: list[str] = []


class MortalClient(Client):
    life: Life

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        life = self.life
        if life.dead:
            raise LeaseLostError("killed")
        counts = method != "GET" and ("/resourceclaims" in path or "/pods" in path)
        if life.allocations:
            counts = counts and "/resourceclaims/" in path and path.endswith("/status")
        if counts and life.left is not None:
            life.left -= 1
            if life.left <= 0 and not life.after:
                life.dead = True
                raise LeaseLostError("killed before the write")
        answer = await super().request(method, path, **more)
        if counts:
            life.done.append(f"{method} {path}")
        if counts and life.left is not None and life.left <= 0:
            life.dead = True
            raise LeaseLostError("killed before the answer came")
        if life.dead:
            raise LeaseLostError("killed")
        return answer


class Lease:
    """A leadership without a Lease object: it is lost when the controller is killed."""

    def __init__(self) -> None:
        self.held = True
        self.lost = asyncio.Event()
        self.identity = "test"
        self.transitions: int | None = None

    def abandon(self) -> None:
        self.held = False


class Watchdog:
    """Sees all claims at all times: no device may be in two of them."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, str, str, str | None], dict[str, str]] = {}
        self.violations: list[str] = []

    def __call__(self, change: Change[resource.ResourceClaim]) -> None:
        uid = change.object.metadata.uid
        for holders in self.holders.values():
            holders.pop(uid, None)
        allocation = change.new.status.allocation if change.new else None
        for result in allocation.devices.results if allocation else ():
            if result.admin_access:
                continue  # it holds nothing
            holders = self.holders.setdefault((result.driver, result.pool, result.device, result.share_id), {})
            holders[uid] = change.object.metadata.name
            if len(holders) > 1:
                self.violations.append(f"{result.pool}/{result.device} is in {sorted(holders.values())}")

    @property
    def held(self) -> int:
        return sum(1 for holders in self.holders.values() if holders)


class Bench:
    def __init__(self, cluster: Cluster, client: Client, workdir: Path, *, named: bool = False) -> None:
        self.named = named
        self._templates: dict[str, str] = {}  # UID by name
        self._pods_named = 0
        self.cluster = cluster
        self.client = client
        self.workdir = workdir
        self.recording = workdir / "recording"
        self._faked = False  # a test decided in the engine's place
        self.watchdog = Watchdog()
        self.pods: Informer[core.Pod] = Informer(client, resources.PODS)
        self.claims: Informer[resource.ResourceClaim] = Informer(client, resources.RESOURCE_CLAIMS)
        self.gangs: Informer[Raw] = Informer(client, resources.GANGS)
        self.claims.subscribe(self.watchdog)
        self._changed = asyncio.Event()
        for informer in (self.pods, self.claims, self.gangs):
            informer.subscribe(lambda change: self._changed.set())

    # -- controllers -----------------------------------------------------------------------------------------------

    def options(self, **more: Any) -> ControllerOptions:
        kubeconfig = self.cluster.kubeconfig(names.CONTROLLER_USER)
        self._faked |= vars(term)["Cycle"] is not Cycle
        chosen = {"gang_timeout_s": 60.0, "seed": 1, "record": self.recording, "forecast": False, **more}
        return ControllerOptions(kubeconfig=kubeconfig, **chosen)

    @contextlib.asynccontextmanager
    async def controller(self, **more: Any) -> AsyncIterator[None]:
        """The real program, with its lease."""
        ready = asyncio.Event()
        task = asyncio.create_task(app.run(self.options(**more), ready=ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((task, waiting), timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), task
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def mortal(self, life: Life, until: Callable[[], bool], **more: Any) -> None:
        """A controller that leads until it is killed, or `until` holds (then it is killed too)."""
        options = self.options(**more)
        async with MortalClient.connect(options.kubeconfig) as client:
            assert isinstance(client, MortalClient)
            client.life = life
            lease = Lease()
            task = asyncio.create_task(term.lead(options, client, lease))

            def over() -> bool:
                return life.dead or until()

            await self.until(over, "the controller's death or success")
            life.dead = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- objects ---------------------------------------------------------------------------------------------------

    async def template(self, name: str, count: int = 1, *, selector: str = "true", **request: Any) -> None:
        exactly = {
            "deviceClassName": names.GPU_CLASS,
            "allocationMode": "ExactCount",
            "count": count,
            "selectors": [{"cel": {"expression": selector}}],
        } | request
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        made = await self.client.create(
            resources.raw(resources.RESOURCE_CLAIM_TEMPLATES),
            {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}},
        )
        self._templates[name] = made["metadata"]["uid"]

    async def claim(self, name: str, count: int = 1) -> None:
        exactly = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": count}
        await self.client.create(
            resources.raw(resources.RESOURCE_CLAIMS),
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            },
        )

    async def pod(
        self,
        name: str,
        *,
        template: str | None = None,
        claim: str | None = None,
        gang: str | None = None,
        size: int | str | None = None,
        sleep: float | None = None,
        script: str = "",
        gates: Sequence[str] = (names.ADMISSION_GATE,),
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        namespace: str = NAMESPACE,
        **spec: Any,
    ) -> core.Pod:
        notes = dict(annotations or {})
        if gang:
            notes |= {names.GANG: gang, names.GANG_SIZE: str(size)}
        use = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        if template and self.named and (source := self._source(name, template)) is not None:
            use = {"resourceClaimName": source.claim}
            notes[names.CLAIM_SOURCES] = claim_sources.annotation(
                {"gpu": source}, namespace=namespace, owner_uid="", key=b""
            )
        command = ["sh", "-c", script] if script else ["serve"] if sleep is None else ["sleep", str(sleep)]
        body = {
            "metadata": {"name": name, "namespace": namespace, "annotations": notes, "labels": labels or {}},
            "spec": {
                "restartPolicy": "Never",
                "schedulingGates": [{"name": gate} for gate in gates],
                "resourceClaims": [{"name": "gpu", **use}] if template or claim else [],
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "command": command,
                        "resources": {"claims": [{"name": "gpu"}] if template or claim else []},
                    }
                ],
            }
            | spec,
        }
        made = await self.client.create(resources.PODS, body)
        self.pods.note(made)
        return made

    def _source(self, pod: str, template: str) -> ClaimSource | None:
        if template not in self._templates and legacy.parse_template_name(template) is None:
            return None
        self._pods_named += 1
        name = claim_sources.claim_name(pod, "gpu", f"{self._pods_named}")
        return ClaimSource(claim=name, template=template, uid=self._templates.get(template, ""))

    async def gang(self, gang: str, size: int, *, template: str, members: int | None = None, **more: Any) -> list[str]:
        pods = [f"{gang}-{number}" for number in range(size if members is None else members)]
        for name in pods:
            await self.pod(name, template=template, gang=gang, size=size, **more)
        return pods

    async def delete(self, pods: Iterable[str]) -> None:
        for name in pods:
            with contextlib.suppress(errors.NotFound):
                await self.client.delete(resources.PODS, name, NAMESPACE, grace_period_s=0)

    # -- looking ---------------------------------------------------------------------------------------------------

    def get(self, pod: str) -> core.Pod | None:
        return self.pods.get(f"{NAMESPACE}/{pod}")

    def bound(self, pods: Iterable[str]) -> bool:
        return all((pod := self.get(name)) is not None and bool(pod.spec.node_name) for name in pods)

    def running(self, pods: Iterable[str]) -> bool:
        return all((pod := self.get(name)) is not None and pod.status.phase == "Running" for name in pods)

    def gated(self, pods: Iterable[str]) -> bool:
        return all((pod := self.get(name)) is not None and pod.has_gate(names.ADMISSION_GATE) for name in pods)

    def status(self, gang: str) -> dict[str, Any]:
        raw = self.gangs.get(f"{NAMESPACE}/{gang}")
        return dict(raw.get("status", {})) if raw else {}

    def allocated(self) -> list[resource.ResourceClaim]:
        return [claim for claim in self.claims.all() if claim.status.allocation is not None]

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
        """Waits for a change that makes it so."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} s: {what}\n{self.describe()}") from None

    async def event(self, name: str, beginning: str, timeout_s: float = 30.0) -> None:
        """Waits for an event about `name` that begins so: events are written beside the work, not before it."""
        seen: list[str] = []
        try:
            async with asyncio.timeout(timeout_s):
                while not any(text.startswith(beginning) for text in seen):
                    await asyncio.sleep(0.05)
                    found = (await self.client.list(resources.EVENTS, NAMESPACE)).items
                    seen = [f"{e['reason']}: {e['message']}" for e in found if e["involvedObject"]["name"] == name]
        except TimeoutError:
            raise AssertionError(f"no event about {name} begins with {beginning!r}: {seen}") from None

    def describe(self) -> str:
        lines = []
        for pod in self.pods.all():
            gates = [gate.name for gate in pod.spec.scheduling_gates]
            lines.append(f"pod {pod.metadata.name}: {pod.status.phase} on {pod.spec.node_name or '-'} gates={gates}")
        for claim in self.claims.all():
            results = claim.status.allocation.devices.results if claim.status.allocation else ()
            devices = [f"{result.pool}/{result.device}" for result in results]
            reserved = [reference.name for reference in claim.status.reserved_for]
            lines.append(f"claim {claim.metadata.name}: {devices} for {reserved} {claim.metadata.finalizers}")
        lines += [f"gang {gang['metadata']['name']}: {gang.get('status')}" for gang in self.gangs.all()]
        return "\n".join(lines)

    def check(self) -> None:
        assert self.watchdog.violations == []

    def check_recording(self) -> None:
        """Every decision that a controller took here, decided again, is the same: with the controllers ended, however they did."""
        if self._faked or not self.recording.exists():
            return
        for found in differences(Reader([self.recording]), Counts()):
            raise AssertionError(f"{found.where}: {side_by_side(lines(found.recorded), lines(found.now))}")


@contextlib.asynccontextmanager
async def benches(
    workdir: Path, *, count: int = 2, more: Sequence[NodeSpec] = (), named: bool = False, **options: Any
) -> AsyncIterator[Bench]:
    """`count` nodes of eight H100s, and `more` nodes; `options` are more of the cluster's."""
    nodes = (*(NodeSpec(f"h{number}", "hgx-h100") for number in range(1, count + 1)), *more)
    options.setdefault("release", of_this_run())
    chosen = ClusterOptions(workdir=workdir, nodes=nodes, drivers=drivers(), run_programs=False, **options)
    async with Cluster(chosen) as cluster, cluster.client() as client:
        await client.create(resources.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        made = Bench(cluster, client, workdir, named=named)
        tasks = [asyncio.create_task(informer.run()) for informer in (made.pods, made.claims, made.gangs)]
        try:
            await asyncio.gather(*(i.synced.wait() for i in (made.pods, made.claims, made.gangs)))
            yield made
            made.check()
            made.check_recording()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def named() -> bool:
    """Whether the pods' claims are named in their spec. A module overrides it to have its tests run in another way, or both."""
    return False


@pytest.fixture
async def bench(tmp_path: Path, named: bool) -> AsyncIterator[Bench]:
    async with benches(tmp_path, named=named) as made:
        yield made
