"""A cluster on which the manifests of examples/ run with the pods that their controllers would make.

The sandbox's apiserver, controllers of Jobs and Deployments, garbage collector, scheduler, kubelets and drivers, Fairlead's webhook and controller, all in
this process. The other systems are there by their kinds and shapes: what they would create, their account creates.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.controller import app as controller
from fairlead.controller.app import ControllerOptions
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import DEPLOYMENTS, GANGS, PODS, RESOURCE_CLAIMS, Raw, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.installation import nvidia_gpus
from fairlead.sandbox.objects import results_of
from fairlead.webhook import app as webhook
from fairlead.webhook.options import WebhookOptions
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import FAST, FAST_MANAGER, Ledger, ledger, until
from tests.support.shapes import leader_worker_set
from tests.support.shapes.base import Controller, Obj
from tests.support.tasks import drivers

COLUMNS = ("NAME", "QUEUE", "PHASE", "SIZE", "READY", "REASON", "POSITION")
"""Of `kubectl get gangs`, without the age; a test compares them with the CustomResourceDefinition."""


class Site:
    def __init__(self, cluster: Cluster, controllers: Sequence[Controller], seen: Ledger) -> None:
        self.cluster = cluster
        self.client: Client = cluster.admin
        self.seen = seen
        self._applier = Applier(cluster.admin)
        self._makers = [(kind, each, shape) for each in controllers for kind, shape in each.shapes.items()]
        self._stored: dict[tuple[str, str, str], Obj] = {}
        self._made: list[Obj] = []
        self._clients: dict[str, Client] = {}
        self._stack = contextlib.AsyncExitStack()

    async def close(self) -> None:
        await self._stack.aclose()

    async def apply(self, objects: Iterable[Obj]) -> None:
        """Apply manifests as a user would; then every controller makes of them what it makes, down to the pods."""
        todo = [self._note(each) for each in await self._applier.apply(objects)]
        while todo:
            found = todo.pop(0)
            for kind, maker, shape in self._makers:
                if kind == found["kind"]:
                    todo += [await self._create(maker, made) for made in shape(found, self._lookup)]

    async def delete(self, objects: Sequence[Obj]) -> None:
        """Delete what was applied, and wait until nothing of it is left: no pod, no allocated claim, no gang.

        The sandbox's garbage collector does not know other systems' kinds, so what was made of them is deleted here, too.
        """
        await self._applier.delete(objects)
        for made in self._made:
            resource = await self._applier.resource_of(made)
            with contextlib.suppress(errors.NotFound):
                namespace, name = made["metadata"]["namespace"], made["metadata"]["name"]
                await self.client.delete(resource, name, namespace, propagation="Background")
        namespaces = {each["metadata"].get("namespace") for each in objects if each["kind"] != "Namespace"}

        async def gone() -> bool:
            pods = [pod for each in namespaces if each for pod in await self.pods(each)]
            return not pods and not await self.allocated() and not (await self.client.list(raw(GANGS))).items

        await until(gone, what="nothing is left of the example")
        self._stored.clear()
        self._made.clear()

    async def pods(self, namespace: str) -> list[Raw]:
        return (await self.client.list(raw(PODS), namespace)).items

    async def deployments(self, namespace: str) -> list[Raw]:
        return (await self.client.list(DEPLOYMENTS, namespace)).items

    async def devices(self, pod: Raw) -> list[str]:
        """The devices of the claims that are reserved for the pod, as pool/device."""
        claims = (await self.client.list(raw(RESOURCE_CLAIMS), pod["metadata"]["namespace"])).items
        reserved = [
            claim
            for claim in claims
            if any(each["uid"] == pod["metadata"]["uid"] for each in claim.get("status", {}).get("reservedFor") or ())
        ]
        return [f"{each['pool']}/{each['device']}" for claim in reserved for each in results_of(claim)]

    async def gangs(self, namespace: str) -> list[tuple[str, ...]]:
        """The rows of `kubectl get gangs -n NAMESPACE` without the age, by name."""
        found = (await self.client.list(raw(GANGS), namespace)).items
        return sorted(_row(gang) for gang in found)

    async def allocated(self) -> list[Raw]:
        return [each for each in (await self.client.list(raw(RESOURCE_CLAIMS))).items if results_of(each)]

    async def _create(self, maker: Controller, made: Obj) -> Obj:
        if made["kind"] == "Pod":
            leader_worker_set.labelled(made)
        resource = await self._applier.resource_of(made)
        client = await self._client_of(maker.account)
        stored = await client.create(resource, made, namespace=made["metadata"]["namespace"])
        self._made.append(self._note({"apiVersion": made["apiVersion"], "kind": made["kind"], **stored}))
        return self._made[-1]

    async def _client_of(self, account: str) -> Client:
        if account not in self._clients:
            path = self.cluster.kubeconfig(account)
            self._clients[account] = await self._stack.enter_async_context(Client.connect(path))
        return self._clients[account]

    def _note(self, stored: Obj) -> Obj:
        metadata = stored["metadata"]
        self._stored[stored["kind"], metadata.get("namespace", ""), metadata["name"]] = stored
        return stored

    def _lookup(self, kind: str, namespace: str, name: str) -> Obj:
        return self._stored[kind, namespace, name]


def load(path: str | Path) -> list[Obj]:
    """The objects of a file or directory below examples/."""
    return [dict(each) for each in manifests.load(files.find(f"examples/{path}"))]


def _row(gang: Raw) -> tuple[str, ...]:
    spec, status = gang["spec"], gang.get("status", {})
    cells = [gang["metadata"]["name"], status.get("queue"), status.get("phase"), spec["size"], status.get("ready")]
    return tuple("" if cell is None else str(cell) for cell in (*cells, status.get("reason"), status.get("position")))


def _rights(controllers: Sequence[Controller]) -> list[Obj]:
    """What the installations of the other systems bring: the right of their accounts to make objects."""
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create"]}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "other-systems"}}
    users = [{**group, "kind": "User", "name": each.account} for each in controllers]
    return [
        {**head, "kind": "ClusterRole", "rules": [rule]},
        {
            **head,
            "kind": "ClusterRoleBinding",
            "roleRef": {**group, "kind": "ClusterRole", "name": "other-systems"},
            "subjects": users,
        },
    ]


@contextlib.asynccontextmanager
async def sites(controllers: Sequence[Controller], *nodes: NodeSpec, driver: str = names.DRIVER) -> AsyncIterator[Site]:
    """The cluster with examples/00-queues and these systems' kinds; at the end no device was ever in two claims.

    With NVIDIA's `driver` that is the managed one, and a stand-in serves it on `labelled` nodes.
    """
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        options = ClusterOptions(
            workdir=Path(path),
            nodes=nodes,
            drivers=drivers(),
            run_programs=False,
            times=FAST,
            manager=FAST_MANAGER,
            scheduler_backoff_s=(0.1, 1.0),
            release=of_this_run(),
        )
        async with (
            Cluster(options) as cluster,
            nvidia_gpus(cluster) if driver == NVIDIA else contextlib.nullcontext(),
            _programs(cluster, driver),
            ledger(cluster.admin) as seen,
        ):
            site = Site(cluster, controllers, seen)
            kinds = [kind.definition for each in controllers for kind in each.kinds]
            await cluster.apply([*kinds, *_rights(controllers), *load("00-queues")])
            try:
                yield site
            finally:
                await site.close()
            assert seen.doubles == []


@contextlib.asynccontextmanager
async def _programs(cluster: Cluster, driver: str) -> AsyncIterator[None]:
    of_webhook, of_controller = (
        f"system:serviceaccount:{names.NAMESPACE}:fairlead-{each}" for each in ("webhook", "controller")
    )
    config, of_driver = cluster.kubeconfig(of_webhook), (driver,)
    hook = WebhookOptions(kubeconfig=config, managed_drivers=of_driver, bind="127.0.0.1:0", url="https://127.0.0.1:0")
    config = cluster.kubeconfig(of_controller)
    head = ControllerOptions(kubeconfig=config, managed_drivers=of_driver, seed=1, forecast=False)
    ready = asyncio.Event(), asyncio.Event()
    runs: tuple[Coroutine[Any, Any, None], ...] = (
        webhook.run(hook, ready=ready[0]),
        controller.run(head, ready=ready[1]),
    )
    tasks = [asyncio.create_task(each) for each in runs]
    try:
        await until(lambda: all(each.is_set() for each in ready) or any(task.done() for task in tasks))
        assert all(each.is_set() for each in ready), tasks
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
