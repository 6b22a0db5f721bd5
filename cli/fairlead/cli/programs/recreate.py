"""`fairlead recreate`: delete waiting pods whose claims the webhook named, so that their owners create them again.

Such a pod waits for claims that only Fairlead's controller makes. After a downgrade to a version that does not make them, or an
uninstall, it would wait forever; after an opt-out (`fairlead.dev/claim-names: generated`) it would still go the old way. A pod that
is released meanwhile is left alone: the deletion carries the resourceVersion with which the pod was seen gated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.api import names
from fairlead.cli.printer import say
from fairlead.cli.programs.commands import Recreate
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, Raw, raw


@dataclass(frozen=True)
class Waiting:
    """`pods` as seen, each with an owner that recreates it; `without_owner` as namespace/name."""

    pods: tuple[Raw, ...]
    without_owner: tuple[str, ...]


def recreate(asked: Recreate) -> int:
    """The exit code: 1 when a pod could not be deleted."""
    return asyncio.run(_connected(asked))


async def _connected(asked: Recreate) -> int:
    dry_run = asked.dry_run
    async with Client.connect(asked.kubeconfig, context=asked.context, user_agent="fairlead-recreate") as client:
        found = waiting((await client.list(raw(PODS), asked.namespace)).items)
        failed = 0
        for pod in found.pods:
            outcome = "would be deleted" if dry_run else await _delete(client, pod)
            failed += outcome.startswith("not deleted")
            say(f"  {_key(pod)}: {outcome}")
        for key in found.without_owner:
            say(f"  {key}: nothing would create it again; delete it yourself")
        done = "to delete" if dry_run else "looked at"
        say(f"{len(found.pods)} waiting pods with named claims {done}")
        return 1 if failed else 0


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
    meta, gates = pod["metadata"], (pod.get("spec") or {}).get("schedulingGates") or ()
    return (
        names.CLAIM_SOURCES in (meta.get("annotations") or {})
        and not meta.get("deletionTimestamp")
        and any(gate.get("name") == names.ADMISSION_GATE for gate in gates)
    )


def _has_controller(pod: Raw) -> bool:
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
