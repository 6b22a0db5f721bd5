"""Which claims have devices of certain GPUs, and the eviction of their pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fairlead.api import names
from fairlead.api.durations import duration_s
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, Raw, raw

AGAIN_S = 5.0


@dataclass(frozen=True)
class Holder:
    """A claim as namespace/name, its devices of these GPUs, and its pods: (name, UID)."""

    claim: str
    devices: tuple[str, ...]
    pods: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        pods = ", ".join(name for name, _ in self.pods) or "no pod"
        return f"{self.claim} has {', '.join(self.devices)}: {pods}"


def belongs(device: str, gpus: Collection[str]) -> bool:
    """Whether a device is one of these GPUs, as gpu-3, or a MIG device of one."""
    return device in gpus or device.partition("-mig-")[0] in gpus


def holders(claims: Iterable[Raw], node: str, gpus: Collection[str], *, admin: bool = True) -> list[Holder]:
    """The holders of a GPU, sorted by the names of their claims. `admin`: with those that have admin access only, as monitoring has."""
    found = []
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        held = [
            str(each["device"])
            for each in results
            if each["driver"] == names.DRIVER
            and each["pool"] == node
            and belongs(each["device"], gpus)
            and (admin or not each.get("adminAccess"))
        ]
        if held:
            pods = [each for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
            found.append(
                Holder(
                    f"{claim['metadata']['namespace']}/{claim['metadata']['name']}",
                    tuple(sorted(held)),
                    tuple(sorted((str(each["name"]), str(each.get("uid", ""))) for each in pods)),
                )
            )
    return sorted(found, key=lambda each: each.claim)


class Evictions:
    """`step` evicts the pods of all holders once, as budgets allow; what is refused is tried again after `AGAIN_S`.

    A pod that asks for time to write a checkpoint (`fairlead.dev/checkpoint-grace`) gets it as its grace period.
    """

    def __init__(
        self, client: Client, say: Callable[[str], None], clock: Callable[[], float], *, admin: bool = True
    ) -> None:
        """`admin`: also those that have admin access only."""
        self._client = client
        self._admin = admin
        self._say = say
        self._clock = clock
        self._done: set[str] = set()
        self._refused: dict[str, tuple[str, float]] = {}

    async def step(self, node: str, gpus: Collection[str]) -> None:
        claims = (await self._client.list(raw(RESOURCE_CLAIMS))).items
        for holder in holders(claims, node, gpus, admin=self._admin):
            namespace = holder.claim.partition("/")[0]
            for name, uid in holder.pods:
                if uid not in self._done and self._refused.get(uid, ("", 0.0))[1] <= self._clock():
                    await self._evict(namespace, name, uid)

    async def _evict(self, namespace: str, name: str, uid: str) -> None:
        try:
            pod = await self._client.get(raw(PODS), name, namespace)
            grace_s = _grace_s(pod)
            await self._client.evict(name, namespace, uid=uid, grace_period_s=grace_s)
        except (errors.NotFound, errors.Conflict):
            self._done.add(uid)
            return
        except errors.TooManyRequests as error:
            if self._refused.get(uid, ("", 0.0))[0] != str(error):
                self._say(f"pod {namespace}/{name} cannot be evicted now: {error}; tried again")
            self._refused[uid] = str(error), self._clock() + AGAIN_S
            return
        self._done.add(uid)
        time = "" if grace_s is None else f"; it has {grace_s} s for a checkpoint"
        owned = any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())
        self._say(f"pod {namespace}/{name} is evicted{time}{'' if owned else '; nothing will create it again'}")


def _grace_s(pod: Raw) -> int | None:
    """The grace period where the pod asks for more time than its own; None: its own."""
    text = (pod["metadata"].get("annotations") or {}).get(names.CHECKPOINT_GRACE)
    try:
        wanted_s = 0 if text is None else int(duration_s(text))
    except ValueError:
        wanted_s = 0
    own_s = pod["spec"].get("terminationGracePeriodSeconds")
    return wanted_s if wanted_s > (30 if own_s is None else own_s) else None
