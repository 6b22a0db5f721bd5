"""kube-controller-manager as far as it is needed: its loops, each under its own account, on shared informers.

Starts and stops them together. Holds no decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.events import EventRecorder
from fairlead.kube.resources import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from fairlead.sandbox.controllers.claim_controller import ClaimController
from fairlead.sandbox.controllers.disruption_controller import DisruptionController
from fairlead.sandbox.controllers.evictions import TaintEviction
from fairlead.sandbox.controllers.garbage import GarbageCollector
from fairlead.sandbox.controllers.job_controller import JobController
from fairlead.sandbox.controllers.namespace_controller import NamespaceController
from fairlead.sandbox.controllers.node_lifecycle import NodeLifecycle
from fairlead.sandbox.controllers.quota_controller import QuotaController
from fairlead.sandbox.controllers.workload_controllers import DeploymentController, ReplicaSetController
from fairlead.sandbox.informers import Informers, by_claim, by_owner
from fairlead.sandbox.objects import node_name_of
from fairlead.sandbox.release import NEWEST, Release

Access = Callable[[str], Kubeconfig]
"""How a user reaches the apiserver."""


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """`qps` and `burst` limit each controller's client; the real default is 20 and 30, None is no limit.

    `job_backoff_s`: after one failed pod of a Job; doubled by each further one, up to sixty times as long. 10 s upstream. How
    long the Job controller gathers changes of pods before it looks at their Job is a tenth of it, as upstream.
    """

    qps: float | None = None
    burst: int = 30
    job_backoff_s: float = 1.0
    node_grace_s: float = 15.0
    node_eviction_s: float = 3.0
    run_elsewhere: frozenset[str] = frozenset({names.NAMESPACE})
    """Namespaces whose Deployments and ReplicaSets are left alone: `install.workloads` runs what was installed."""


def account(name: str) -> str:
    return f"system:serviceaccount:kube-system:{name}"


async def run(
    access: Access, *, ca_pem: str, options: ManagerOptions, ready: asyncio.Event, release: Release = NEWEST
) -> None:
    """All loops that the release has, until cancelled."""
    async with contextlib.AsyncExitStack() as stack:

        async def client(user: str, *, limited: bool = True) -> Client:
            qps = options.qps if limited else None
            return await stack.enter_async_context(
                Client.connect(access(user), user_agent=user, qps=qps, burst=options.burst)
            )

        shared = Informers(await client("system:kube-controller-manager", limited=False))
        shared.of(PODS, indexes={"owner": by_owner, "claim": by_claim, "node": lambda pod: [node_name_of(pod)]})
        shared.of(RESOURCE_CLAIMS, indexes={"owner": by_owner})
        shared.of(REPLICA_SETS, indexes={"owner": by_owner})
        for resource in (RESOURCE_CLAIM_TEMPLATES, JOBS, NODES, DEPLOYMENTS):
            shared.of(resource)
        recorders: list[EventRecorder] = []

        async def recorded(name: str) -> tuple[Client, Informers, EventRecorder]:
            made = await client(account(name))
            recorders.append(EventRecorder(made, name))
            return made, shared, recorders[-1]

        elsewhere, backoff_s = options.run_elsewhere, options.job_backoff_s
        node_s, eviction_s = options.node_grace_s, options.node_eviction_s
        loops = [
            ClaimController(*await recorded("resource-claim-controller")).run,
            JobController(*await recorded("job-controller"), backoff_s=backoff_s, batch_s=backoff_s / 10).run,
            ReplicaSetController(*await recorded("replicaset-controller"), run_elsewhere=elsewhere).run,
            DeploymentController(*await recorded("deployment-controller"), run_elsewhere=elsewhere).run,
            NodeLifecycle(*await recorded("node-controller"), grace_s=node_s, eviction_s=eviction_s).run,
            DisruptionController(await client(account("disruption-controller")), shared).run,
            QuotaController(await client(account("resourcequota-controller")), shared).run,
            GarbageCollector(await client(account("generic-garbage-collector"))).run,
            NamespaceController(await client(account("namespace-controller")), ca_pem=ca_pem).run,
            *(recorder.run for recorder in recorders),
        ]
        if release.has("device-taints"):
            loops.append(TaintEviction(await client(account("device-taint-eviction-controller"))).run)
        async with asyncio.TaskGroup() as group:
            group.create_task(shared.run(), name="controller-manager informers")
            await shared.synced()
            for loop in loops:
                group.create_task(loop(), name=getattr(loop, "__qualname__", "loop"))
            ready.set()
