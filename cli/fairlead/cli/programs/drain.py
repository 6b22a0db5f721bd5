"""`fairlead drain`: what must end before Fairlead is uninstalled: no claim may hold a device of its drivers.

An uninstall in another order leaves claims that no driver can unprepare, and pods that cannot terminate. Lists the claims
and gated pods; evicts only when asked to. Runs with the operator's permissions, not with a program's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from fairlead.api import names
from fairlead.cli.printer import say
from fairlead.cli.programs.commands import Drain as DrainCommand
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import (
    DEPLOYMENTS,
    PODS,
    RESOURCE_CLAIMS,
    Raw,
    raw,
)

POLL_S = 1.0
SHOWN_MAX = 20

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Held:
    """What an uninstall would leave without Fairlead. `claims` is claim → its pods; `gated` the gated pods; all as namespace/name."""

    claims: dict[str, tuple[str, ...]]
    gated: tuple[str, ...]


def drain(asked: DrainCommand) -> int:
    """The exit code: 0 when nothing holds a device, 1 when something does."""
    return asyncio.run(_connected(asked))


async def _connected(asked: DrainCommand) -> int:
    async with Client.connect(asked.kubeconfig, context=asked.context, user_agent="fairlead-drain") as client:
        draining = Drain(client, asked.managed_drivers)
        if asked.evict:
            await draining.evict(asked.timeout_s)
        held = await draining.look()
        say("\n".join(said(held)))
        return 1 if held.claims else 0


def said(held: Held) -> list[str]:
    """Lines for people: what holds devices, and what waits for Fairlead."""
    if held.claims:
        lines = [f"{len(held.claims)} claims hold devices; end their pods, or run `fairlead drain --evict`:"]
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


class Drain:
    def __init__(self, client: Client, drivers: Collection[str], *, sleep: Sleep = asyncio.sleep) -> None:
        self._client = client
        self._drivers = drivers
        self._sleep = sleep

    async def look(self) -> Held:
        claims = {}
        for claim in (await self._client.list(raw(RESOURCE_CLAIMS))).items:
            if self._ours(claim):
                namespace = claim["metadata"]["namespace"]
                reserved = claim["status"].get("reservedFor") or ()
                pods = tuple(f"{namespace}/{each['name']}" for each in reserved if each.get("resource") == "pods")
                claims[f"{namespace}/{claim['metadata']['name']}"] = pods
        gated = [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in (await self._client.list(raw(PODS))).items
            if _gated(pod)
        ]
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
    return any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())
