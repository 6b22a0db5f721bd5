"""The controllers of ReplicaSets and Deployments: they create, delete and scale, and write the status.

The decisions are in replica_sets.py and deployments.py; here are the caches and the writes, each under the controller's own account.
Those of namespaces that are run elsewhere (`install.workloads` starts Fairlead's own programs) are left alone. Pods and sets
without an owner are not adopted.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock
from fairlead.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Raw, raw
from fairlead.sandbox.controllers import deployments, replica_sets
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import Informers
from fairlead.sandbox.objects import Obj, controller_of, is_deleting, name_of, namespace_of, spec_of, status_of, uid_of

log = logging.getLogger(__name__)

_PODS: Final = raw(PODS)


class ReplicaSetController(Loop[str]):
    name = "replica set controller"

    def __init__(
        self,
        client: Client,
        informers: Informers,
        events: EventRecorder,
        *,
        run_elsewhere: frozenset[str],
        wall: Clock = time.time,
    ) -> None:
        super().__init__()
        self._client = client
        self._events = events
        self._elsewhere = run_elsewhere
        self._wall = wall
        self._sets = informers.of(REPLICA_SETS)
        self._pods = informers.of(PODS)
        self._failures: dict[str, str] = {}  # by key: of the last write of a pod
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(self._pod_changed)

    def _set_changed(self, change: Change[Raw]) -> None:
        self.queue.add(change.key)
        if change.new is None:
            self._failures.pop(change.key, None)

    def _pod_changed(self, change: Change[Raw]) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner.get("kind") == "ReplicaSet":
            self.queue.add(f"{namespace_of(change.object)}/{owner['name']}")

    async def sync(self, key: str) -> None:
        found = self._sets.get(key)
        if found is None or namespace_of(found) in self._elsewhere:
            return
        pods = self._pods.by_index("owner", uid_of(found))
        work = replica_sets.set_work(found, pods)
        try:
            await self._carry_out(found, work)
            self._failures.pop(key, None)
        except errors.ApiError as error:
            self._failures[key] = str(error)
            self._events.record(
                Regarding.of(REPLICA_SETS, found), "FailedCreate", f"Error creating: {error}", type="Warning"
            )
            raise
        finally:
            await self._write_status(key, found)

    async def _carry_out(self, found: Obj, work: replica_sets.SetWork) -> None:
        about = Regarding.of(REPLICA_SETS, found)
        for _ in range(work.creates):
            created = await self._client.create(_PODS, replica_sets.new_pod(found), namespace_of(found))
            self._pods.note(created)
            self._events.record(about, "SuccessfulCreate", f"Created pod: {name_of(created)}")
        for name in work.deletes:
            try:
                await self._client.delete(_PODS, name, namespace_of(found))
            except errors.NotFound:
                continue
            self._events.record(about, "SuccessfulDelete", f"Deleted pod: {name}")

    async def _write_status(self, key: str, found: Obj) -> None:
        pods = self._pods.by_index("owner", uid_of(found))
        status, again_s = replica_sets.set_status(found, pods, now_s=self._wall(), failure=self._failures.get(key, ""))
        if status != status_of(found) and not is_deleting(found):
            written = await self._client.replace(REPLICA_SETS, {**found, "status": status}, subresource="status")
            self._sets.note(written)
        if again_s is not None:
            self.queue.add_after(key, again_s)


class DeploymentController(Loop[str]):
    name = "deployment controller"
    workers = 1  # one write of a Deployment's sets after the other

    def __init__(
        self,
        client: Client,
        informers: Informers,
        events: EventRecorder,
        *,
        run_elsewhere: frozenset[str],
        wall: Clock = time.time,
    ) -> None:
        super().__init__()
        self._client = client
        self._events = events
        self._elsewhere = run_elsewhere
        self._wall = wall
        self._deployments = informers.of(DEPLOYMENTS)
        self._sets = informers.of(REPLICA_SETS)
        self._pods = informers.of(PODS)
        self._deployments.subscribe(lambda change: self.queue.add(change.key))
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(self._pod_changed)

    def _set_changed(self, change: Change[Raw]) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner.get("kind") == "Deployment":
            self.queue.add(f"{namespace_of(change.object)}/{owner['name']}")

    def _pod_changed(self, change: Change[Raw]) -> None:
        """The last pod of an old set is gone: a Deployment with strategy Recreate may go on."""
        owner = controller_of(change.object)
        if change.new is None and owner is not None and owner.get("kind") == "ReplicaSet":
            found = self._sets.get(f"{namespace_of(change.object)}/{owner['name']}")
            above = controller_of(found) if found is not None else None
            if above is not None:
                self.queue.add(f"{namespace_of(change.object)}/{above['name']}")

    async def sync(self, key: str) -> None:
        found = self._deployments.get(key)
        if found is None or is_deleting(found) or namespace_of(found) in self._elsewhere:
            return
        sets = self._sets.by_index("owner", uid_of(found))
        if deployments.current(found, sets) is None and not spec_of(found).get("paused"):
            made = await self._client.create(REPLICA_SETS, deployments.new_set(found, sets), namespace_of(found))
            self._sets.note(made)
            self._scaled(found, "up", name_of(made), 0, replica_sets.replicas_of(made))
            sets = [*sets, made]
        pods = [pod for each in sets for pod in self._pods.by_index("owner", uid_of(each))]
        by_name = {name_of(each): each for each in sets}
        for name, replicas in deployments.scales(found, sets, pods).items():
            before = replica_sets.replicas_of(by_name[name])
            body = {"spec": {"replicas": replicas}}
            self._sets.note(await self._client.patch(REPLICA_SETS, name, body, namespace=namespace_of(found)))
            self._scaled(found, "up" if replicas > before else "down", name, before, replicas)
        for name in deployments.outdated(found, sets):
            await self._client.delete(REPLICA_SETS, name, namespace_of(found))
        await self._write_status(key, found)

    async def _write_status(self, key: str, found: Obj) -> None:
        sets = self._sets.by_index("owner", uid_of(found))
        status, again_s = deployments.deployment_status(found, sets, now_s=self._wall())
        if status != status_of(found):
            written = await self._client.replace(DEPLOYMENTS, {**found, "status": status}, subresource="status")
            self._deployments.note(written)
        if again_s is not None:
            self.queue.add_after(key, again_s)

    def _scaled(self, found: Obj, way: str, name: str, before: int, after: int) -> None:
        message = f"Scaled {way} replica set {name} from {before} to {after}"
        self._events.record(Regarding.of(DEPLOYMENTS, found), "ScalingReplicaSet", message)
