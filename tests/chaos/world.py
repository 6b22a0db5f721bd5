"""The workload of a run: two teams with queues, jobs of every shape, and the rest at the end, when all of them must be done.

Whatever went wrong is repaired before the rest begins; what follows has to happen by itself: every job that fits runs to its end, the
one that fits nowhere says why, and when the jobs are deleted nothing of them is held by anybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, TypeVar

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import JOBS, PODS, RESOURCE_CLAIM_TEMPLATES, Raw, raw
from fairlead.sandbox import files
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.objects import condition, key_of, name_of, phase_of, status_of
from tests.chaos.cluster import APISERVERS, ChaosCluster
from tests.chaos.invariants import Invariants, is_pinned

log = logging.getLogger(__name__)

TEAMS = ("vision", "language")
REST_S = 1500.0  # at most, until everything is done
STUCK_S = 400.0  # without a change of pods, claims or jobs: longer than any back-off and timeout of the cluster
LOOK_S = 2.0
GPUS = 8  # of a node
JOB_TRIES = 40

T = TypeVar("T")
Json = dict[str, Any]
_JOBS, _PODS, _TEMPLATES = raw(JOBS), raw(PODS), raw(RESOURCE_CLAIM_TEMPLATES)
_GANGS = ("fairlead.dev", "gangs")


class World:
    """One run's cluster, workload and verdict."""

    def __init__(self, cluster: ChaosCluster, invariants: Invariants) -> None:
        self.cluster = cluster
        self.invariants = invariants
        self.client: Client
        self.tenants: dict[str, Client] = {}  # with the role edit in the namespace of their team
        self.asked: dict[str, None] = {}  # what users still try
        self.jobs = 0
        self.impossible: set[str] = set()  # keys of jobs that fit nowhere
        self.faulty: set[str] = set()  # nodes whose GPUs report errors that a reboot ends

    # -- the start

    async def prepare(self) -> None:
        """Queues, namespaces, templates and tenants."""
        await Applier(self.client).apply(manifests.load(files.find("examples/00-queues")))
        for team in TEAMS:
            for count in range(1, GPUS + 1):
                await self.client.create(_TEMPLATES, _template(count), namespace=team)
            await Applier(self.client).apply([_edit(team)])

    # -- the workload

    def in_background(self, what: str, work: Callable[[], Awaitable[object]], *, tries: int = 1) -> None:
        """As a user at a terminal: a refusal is read, a failure is tried again later."""
        self.cluster.admin.spawn(self._tried(what, work, tries), what)

    async def _tried(self, what: str, work: Callable[[], Awaitable[object]], tries: int) -> None:
        self.asked[what] = None
        try:
            await self._try(what, work, tries)
        finally:
            self.asked.pop(what, None)

    async def _try(self, what: str, work: Callable[[], Awaitable[object]], tries: int) -> None:
        for attempt in range(tries):
            try:
                async with asyncio.timeout(30.0):
                    await work()
            except (errors.AlreadyExists, errors.NotFound):
                return
            except (errors.ApiError, TimeoutError) as error:
                log.info("%s: %s (attempt %d)", what, error, attempt + 1)
                await asyncio.sleep(3.0)
            else:
                return
        if tries > 1:
            self.invariants.fail(f"{what} was refused {tries} times")

    def submit(self, random: Random) -> str:
        """A job of one to four pods with one to eight GPUs each; returns what it is."""
        self.jobs += 1
        team, name = random.choice(TEAMS), f"g{self.jobs}"
        members = random.choice((1, 1, 2, 2, 3, 4))
        gpus = random.choice((1, 1, 2, 4, 8)) if members < 3 else random.choice((1, 2, 4))
        run_s = round(random.uniform(1.0, 25.0), 1)
        job = _job(
            team,
            name,
            members=members,
            gpus=gpus,
            command=f"sleep {run_s}" if random.random() < 0.8 else f"trap 'sleep 5; exit 1' TERM; sleep {run_s}",
            legacy=random.random() < 0.4,
            min_runtime=random.choice(("", "", "5s")),
            grace=random.choice(("", "", "3s")),
        )
        self.in_background(
            f"job {team}/{name}", lambda: self.client.create(_JOBS, job, namespace=team), tries=JOB_TRIES
        )
        return f"job {team}/{name}: {members} x {gpus} GPUs for {run_s} s"

    def submit_impossible(self, random: Random) -> str:
        """A gang that its queue's limit forbids forever."""
        self.jobs += 1
        team, name = random.choice(TEAMS), f"g{self.jobs}"
        job = _job(team, name, members=5, gpus=8, command="sleep 1", legacy=True, min_runtime="", grace="")
        self.impossible.add(f"{team}/{name}")
        self.in_background(
            f"job {team}/{name}", lambda: self.client.create(_JOBS, job, namespace=team), tries=JOB_TRIES
        )
        return f"job {team}/{name}: 5 x 8 GPUs, more than may ever run"

    def objects(self, group: str, plural: str) -> list[Json]:
        return list(self.cluster.states[0].list(group, plural))

    # -- the rest

    def repair(self) -> None:
        """Nothing is wrong any more from now on."""
        cluster = self.cluster
        cluster.network.heal_all()
        for state in cluster.states:
            state.lag = None
            state.wake_watchers()
        for disk in cluster.disks:
            disk.repair()
        for node in cluster.nodes.values():
            if node.name in self.faulty:
                if node.powered:
                    node.power_off()
                fault_file.clear(node.data_dir / fault_file.NAME)  # after it: a loss of power may bring old files back
            if not node.powered:
                node.power_on()
        self.faulty.clear()
        for program in cluster.programs.values():
            program.skew(0.0)
            program.slow(0.0)
            program.resume()
            program.start()

    def delete_unseen(self) -> None:
        """What docs/troubleshooting.md asks for: pods that were created, or lost their gate, while the webhook was away are deleted."""
        for pod in self.objects("", "pods"):
            spec = pod["spec"]
            if spec.get("resourceClaims") and not (
                spec.get("schedulingGates") or spec.get("nodeName") or is_pinned(pod)
            ):
                self.in_background(f"delete pod {key_of(pod)}", lambda pod=pod: self._delete_pod(pod), tries=5)  # type: ignore[misc]

    async def _delete_pod(self, pod: Json) -> None:
        await self.client.delete(_PODS, name_of(pod), pod["metadata"]["namespace"], uid=pod["metadata"]["uid"])

    async def rest(self) -> None:
        """Until everything has run and nothing is held; what does not come to that is a violation."""
        self.repair()
        if not await self._comes("every job done", self._unfinished):
            return
        for each in sorted(self.impossible):
            self._check_reason(each)
        for job in self.objects("batch", "jobs"):
            self.in_background(
                f"delete job {key_of(job)}",
                lambda job=job: self.client.delete(  # type: ignore[misc]
                    _JOBS, name_of(job), job["metadata"]["namespace"], propagation="Background"
                ),
                tries=5,
            )
        for pod in self.objects("", "pods"):
            if not pod["metadata"].get("ownerReferences"):
                self.in_background(
                    f"delete pod {key_of(pod)}",
                    lambda pod=pod: self._delete_pod(pod),  # type: ignore[misc]
                    tries=5,
                )
        await self._comes("nothing held", self._held)

    async def _comes(self, what: str, missing: Callable[[], Iterator[str]]) -> bool:
        loop = asyncio.get_running_loop()
        began_s = moved_s = loop.time()
        seen = self.invariants.changes
        while (first := next(missing(), None)) is not None:
            if self.invariants.changes != seen:
                seen, moved_s = self.invariants.changes, loop.time()
            if loop.time() >= min(began_s + REST_S, moved_s + STUCK_S):
                for each in list(missing())[:10]:
                    self.invariants.fail(f"{what}: not after {loop.time() - began_s:.0f} s: {each}")
                return False
            if self.invariants.broken:
                return False
            await asyncio.sleep(LOOK_S)
            self.delete_unseen()
            self.invariants.check_nodes()
            self.invariants.check_ends()
        log.info("%s: %s", what, first)
        return True

    def _unfinished(self) -> Iterator[str]:
        for what in self.asked:
            yield f"{what} is still being tried"
        for job in self.objects("batch", "jobs"):
            if key_of(job) in self.impossible:
                if not self._waits_with_reason(key_of(job)):
                    yield f"gang {key_of(job)} fits nowhere, and its Gang does not say so"
            elif condition(job, "Complete") is None:
                yield f"job {key_of(job)} is not complete: {_told(status_of(job))}"
        for pod in self.objects("", "pods"):
            if phase_of(pod) not in {"Succeeded", "Failed"} and _job_of(pod) not in self.impossible:
                yield f"pod {key_of(pod)} is {phase_of(pod)}: {self._state_of(pod)}"

    def _state_of(self, pod: Json) -> str:
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
        told = [f"gates {gates}" if gates else f"node {pod['spec'].get('nodeName')}"]
        told += [
            f"{each['type']}: {each.get('message')}"
            for each in status_of(pod).get("conditions") or ()
            if each.get("message")
        ]
        told += ["deleting"] if pod["metadata"].get("deletionTimestamp") else []
        for gang in self.objects(*_GANGS):
            if gang["metadata"]["name"] in {_job_of(pod).partition("/")[2], name_of(pod)}:
                told.append(f"gang {status_of(gang).get('phase')}: {status_of(gang).get('message')}")
        return "; ".join(told)

    def _waits_with_reason(self, key: str) -> bool:
        gangs = [gang for gang in self.objects(*_GANGS) if key_of(gang) == key]
        return bool(gangs) and bool(status_of(gangs[0]).get("message") or status_of(gangs[0]).get("reason"))

    def _check_reason(self, key: str) -> None:
        for pod in self.objects("", "pods"):
            if _job_of(pod) == key and not pod["spec"].get("schedulingGates"):
                self.invariants.fail(f"pod {key_of(pod)} of a gang that fits nowhere was released")

    def _held(self) -> Iterator[str]:
        for group, plural in (("", "pods"), ("resource.k8s.io", "resourceclaims"), _GANGS):
            for each in self.objects(group, plural):
                if plural == "gangs" and status_of(each).get("reason") == "Evicted":
                    continue  # its age is kept for a quarter of an hour, for the pods that may be made anew
                yield f"{plural} {key_of(each)} is still there: {_told(each.get('status') or {})}"
        for node in self.cluster.nodes.values():
            yield from self._held_on(node.name)

    def _held_on(self, name: str) -> Iterator[str]:
        node = self.cluster.nodes[name]
        for key in node.runtime.running:
            yield f"node {name}: container {'/'.join(key)} still runs"
        if node.kubelet_now is not None:
            for claim in node.kubelet_now.dra.claims:
                yield f"node {name}: kubelet still holds claim {claim.ref.namespace}/{claim.ref.name}"
        for path in sorted((*node.cdi_dir.glob("*"), *(node.data_dir / "claims").glob("*"))):
            if ".unreadable" in path.name:
                continue  # kept aside for whoever asks what happened
            yield f"node {name}: {path.relative_to(node.root)} is still there"

    # -- views

    def running_servers(self) -> list[str]:
        return [name for name in APISERVERS if self.cluster.programs[name].runs]


def _told(value: object) -> str:
    return str(value)[:500]


def _job_of(pod: Json) -> str:
    owner = next((each["name"] for each in pod["metadata"].get("ownerReferences") or ()), "")
    return f"{pod['metadata']['namespace']}/{owner}"


def _template(count: int) -> Raw:
    request = {"name": "gpus", "exactly": {"deviceClassName": names.GPU_CLASS, "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"gpus-{count}"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _edit(team: str) -> Raw:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": team},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"tenant-{team}"}],
    }


def _job(
    team: str, name: str, *, members: int, gpus: int, command: str, legacy: bool, min_runtime: str, grace: str
) -> Raw:
    annotations = {names.GANG: name} if members > 1 else {}
    if min_runtime:
        annotations[names.MIN_RUNTIME] = min_runtime
    if grace:
        annotations[names.CHECKPOINT_GRACE] = grace
    container: Json = {"name": "worker", "image": "busybox:1.37", "command": ["sh", "-c", command]}
    pod: Json = {"restartPolicy": "Never", "containers": [container]}
    if legacy:
        container["resources"] = {"limits": {names.LEGACY_GPU: gpus}}
    else:
        pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": f"gpus-{gpus}"}]
        container["resources"] = {"claims": [{"name": "gpus"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": team},
        "spec": {
            "completionMode": "Indexed",
            "completions": members,
            "parallelism": members,
            "backoffLimit": 1000,
            "template": {"metadata": {"annotations": annotations}, "spec": pod},
        },
    }
