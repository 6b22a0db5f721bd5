"""`fairlead prepare-uninstall` and `recreate`: what must end before Fairlead is uninstalled, with the operator's permissions, not a program's.

`prepare-uninstall`: no claim may hold a device of its drivers; an uninstall in another order leaves claims that no driver can unprepare, and pods that
cannot terminate. It lists the claims and gated pods, and evicts only when asked to.

`recreate`: a pod whose claims the webhook named waits for claims that only Fairlead's controller makes. After a downgrade to a version that
does not make them, or an uninstall, it would wait forever; after an opt-out (`fairlead.dev/claim-names: generated`) it would still go the old
way. It is deleted, so that its owner creates it again. One that is released meanwhile is left alone: the deletion carries the
resourceVersion with which the pod was seen gated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.api import names
from fairlead.cli.printer import say
from fairlead.cli.reading import OfCluster
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.flags import DRIVERS, ManagedDrivers
from fairlead.kube.resources import DEPLOYMENTS, PODS, RESOURCE_CLAIMS, Raw
from fairlead.ui.reading.cluster import Cluster

POLL_S = 1.0
SHOWN_MAX = 20

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class PrepareUninstall(OfCluster):
    """Before an uninstall: say which claims still hold devices, or end them. Exit code 1 while any does."""

    evict: Annotated[
        bool, typer.Option("--evict", help="Stop the controller, then evict the pods that hold devices.")
    ] = False
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for evicted pods.")] = 300.0
    managed_drivers: ManagedDrivers = DRIVERS

    def run(self) -> int:
        """Exit code 0 when nothing holds a device, 1 when something does."""
        return self.ask(self._prepared)

    async def _prepared(self, cluster: Cluster) -> int:
        preparation = Preparation(cluster.client, self.managed_drivers)
        if self.evict:
            await preparation.evict(self.timeout_s)
        held = await preparation.look()
        say("\n".join(said(held)))
        return 1 if held.claims else 0


@dataclass(frozen=True)
class Held:
    """What an uninstall would leave without Fairlead. `claims` is claim → its pods; `gated` the gated pods; all as namespace/name."""

    claims: dict[str, tuple[str, ...]]
    gated: tuple[str, ...]


def said(held: Held) -> list[str]:
    """Lines for people: what holds devices, and what waits for Fairlead."""
    if held.claims:
        lines = [
            f"{len(held.claims)} claims hold devices; end their pods, or run `fairlead prepare-uninstall --evict`:"
        ]
        lines += [
            f"  {claim}: {', '.join(pods) or 'reserved for no pod'}" for claim, pods in sorted(held.claims.items())
        ]
    else:
        lines = ["no claim holds a device"]
    if held.gated:
        lines.append(f"{len(held.gated)} pods wait behind {names.ADMISSION_GATE}; without Fairlead they wait forever:")
        lines += [f"  {pod}" for pod in held.gated[:SHOWN_MAX]]
        if len(held.gated) > SHOWN_MAX:
            lines.append(f"  and {len(held.gated) - SHOWN_MAX} more")
    return lines


class Preparation:
    def __init__(self, client: Client, drivers: Collection[str], *, sleep: Sleep = asyncio.sleep) -> None:
        self._client, self._cluster = client, Cluster(client)
        self._drivers = drivers
        self._sleep = sleep

    async def look(self) -> Held:
        """Raises NotReadError."""
        claims = {}
        for claim in await self._cluster.list(RESOURCE_CLAIMS):
            if self._ours(claim):
                namespace = claim["metadata"]["namespace"]
                reserved = claim["status"].get("reservedFor") or ()
                pods = tuple(f"{namespace}/{each['name']}" for each in reserved if each.get("resource") == "pods")
                claims[_key(claim)] = pods
        gated = [_key(pod) for pod in await self._cluster.list(PODS) if _gated(pod)]
        return Held(claims, tuple(sorted(gated)))

    async def evict(self, timeout_s: float) -> None:
        """Stop the controller, so that nothing new is admitted; evict until no claim is held or the time is over.

        Pods whose PodDisruptionBudget forbids it now are tried again. Kubernetes deallocates the claims of ended pods.
        """
        await self._stop_controller()
        deadline_s = time.monotonic() + timeout_s
        asked: set[str] = set()
        while (held := await self.look()).claims and time.monotonic() < deadline_s:
            for pod in sorted({pod for pods in held.claims.values() for pod in pods} - asked):
                namespace, _, name = pod.partition("/")
                try:
                    await self._client.evict(name, namespace)
                except errors.NotFound:
                    pass
                except errors.TooManyRequests as error:
                    say(f"  {pod}: not now: {error}")
                    continue
                asked.add(pod)
                say(f"  {pod}: evicted")
            await self._sleep(POLL_S)

    async def _stop_controller(self) -> None:
        try:
            await self._client.patch(
                DEPLOYMENTS, names.CONTROLLER_ACCOUNT, {"spec": {"replicas": 0}}, namespace=names.NAMESPACE
            )
            say(
                f"Deployment {names.NAMESPACE}/{names.CONTROLLER_ACCOUNT}: scaled to 0, so that nothing new is admitted"
            )
        except errors.NotFound:
            say(f"Deployment {names.NAMESPACE}/{names.CONTROLLER_ACCOUNT}: is not there; stop your controller yourself")

    def _ours(self, claim: Raw) -> bool:
        allocation: dict[str, Any] = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        return any(result["driver"] in self._drivers for result in results)


def _gated(pod: Raw) -> bool:
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == names.ADMISSION_GATE for gate in gates)


# -- recreate ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recreate(OfCluster):
    """After a downgrade or an opt-out, before an uninstall: delete waiting pods with named claims; their owners recreate them."""

    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only there. Default: everywhere.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the pods.")] = False

    def run(self) -> int:
        """Exit code 1 when a pod could not be deleted."""
        return self.ask(self._recreated)

    async def _recreated(self, cluster: Cluster) -> int:
        found = waiting(await cluster.list(PODS, self.namespace))
        failed = 0
        for pod in found.pods:
            outcome = "would be deleted" if self.dry_run else await _delete(cluster.client, pod)
            failed += outcome.startswith("not deleted")
            say(f"  {_key(pod)}: {outcome}")
        for key in found.without_owner:
            say(f"  {key}: nothing would create it again; delete it yourself")
        done = "to delete" if self.dry_run else "looked at"
        say(f"{len(found.pods)} waiting pods with named claims {done}")
        return 1 if failed else 0


@dataclass(frozen=True)
class Waiting:
    """`pods` as seen, each with an owner that recreates it; `without_owner` as namespace/name."""

    pods: tuple[Raw, ...]
    without_owner: tuple[str, ...]


def waiting(pods: Iterable[Raw]) -> Waiting:
    """The gated pods with named claims, in the order of their names."""
    found = sorted((pod for pod in pods if _waits(pod)), key=_key)
    owned = tuple(pod for pod in found if _has_controller(pod))
    return Waiting(owned, tuple(_key(pod) for pod in found if not _has_controller(pod)))


async def _delete(client: Client, pod: Raw) -> str:
    meta = pod["metadata"]
    try:
        await client.delete(
            PODS, meta["name"], meta["namespace"], uid=meta["uid"], resource_version=meta["resourceVersion"]
        )
    except errors.NotFound:
        return "is gone"
    except errors.Conflict:
        return "changed meanwhile, and is left alone; run the command again"
    except errors.ApiError as error:
        return f"not deleted: {error}"
    return "deleted"


def _waits(pod: Raw) -> bool:
    meta = pod["metadata"]
    return names.CLAIM_SOURCES in (meta.get("annotations") or {}) and not meta.get("deletionTimestamp") and _gated(pod)


def _has_controller(pod: Raw) -> bool:
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
