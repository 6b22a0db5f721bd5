"""Kubelet's DRA manager: prepares a pod's claims before it starts, and unprepares them after it ended.

Rules: a claim is fetched and must be the pod's, reserved for it and allocated; all claims of a pod for one driver go in one
call; a call that answers with an error is repeated; a claim is prepared once however many pods use it, and unprepared after
the last. The claims survive kubelet's restart in a checkpoint with a checksum, written beside and renamed, since the API may have deleted
a claim that the node still has to unprepare; it does not say that a claim *is* prepared: after a restart every claim is prepared again.
A checkpoint that cannot be read is renamed to `.corrupt`, and the state starts empty.
Source: kubernetes pkg/kubelet/cm/dra/manager.go, 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.sandbox.kubelet.plugins import ClaimRef, Plugin, PluginError, PreparedDevice
from fairlead.sandbox.objects import (
    Obj,
    allocation_of,
    is_claim_for,
    is_reserved_for,
    name_of,
    namespace_of,
    pod_claims,
    results_of,
    uid_of,
)

log = logging.getLogger(__name__)

CHECKPOINT: Final = "dra_manager_state"

GetClaim = Callable[[str, str], Awaitable[Obj | None]]  # namespace, name; asks the API


class PrepareError(Exception):
    """Why a pod cannot start yet, or a claim not be unprepared; it is tried again."""


def check(pod: Obj, entry: Mapping[str, Any], name: str, claim: Obj | None) -> Obj:
    """The claim, if the pod may use it now. Raises PrepareError."""
    user = f"pod {name_of(pod)} ({uid_of(pod)})"
    if claim is None:
        raise PrepareError(f"failed to fetch ResourceClaim {name} referenced by {user}: not found")
    if entry.get("resourceClaimTemplateName") is not None and not is_claim_for(claim, pod):
        raise PrepareError(f"ResourceClaim {name} was not created for {user} (pod is not owner)")
    if not is_reserved_for(claim, pod):
        raise PrepareError(f"{user} is not allowed to use ResourceClaim {name} ({uid_of(claim)})")
    if allocation_of(claim) is None:
        raise PrepareError(f"ResourceClaim {name} ({uid_of(claim)}) has no allocation")
    return claim


class DraManager:
    """`get_claim` asks the API; `plugin` finds a driver's connection and raises PluginError when there is none."""

    def __init__(self, *, state_dir: Path, get_claim: GetClaim, plugin: Callable[[str], Plugin]) -> None:
        self._path = state_dir / CHECKPOINT
        self._get_claim = get_claim
        self._plugin = plugin
        self._claims: dict[tuple[str, str], ClaimInfo] = {
            (each.ref.namespace, each.ref.name): each for each in load(self._path)
        }
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    @property
    def claims(self) -> list[ClaimInfo]:
        """The claims of this node, in the order of namespace and name."""
        return [self._claims[key] for key in sorted(self._claims)]

    async def prepare(self, pod: Obj) -> None:
        """Prepare the pod's claims. After PrepareError or PluginError the caller tries again."""
        entries = [(entry, name) for entry, name in pod_claims(pod)]
        if not entries:
            return
        async with self._locked((namespace_of(pod), name) for _, name in entries if name):
            infos = [await self._admit(pod, entry, name) for entry, name in entries]
            self._save()
            wanting = [each for each in {id(each): each for each in infos}.values() if not each.prepared]
            for driver, claims in _by_driver(wanting).items():
                await self._prepare(driver, claims)
            for each in wanting:
                each.prepared = True
            self._save()

    async def _admit(self, pod: Obj, entry: Mapping[str, Any], name: str | None) -> ClaimInfo:
        if name is None:
            raise PrepareError(f"pod {name_of(pod)}: ResourceClaim for {entry.get('name')!r} not created yet")
        namespace = namespace_of(pod)
        claim = check(pod, entry, name, await self._get_claim(namespace, name))
        known = self._claims.get((namespace, name))
        if known is not None and known.ref.uid != uid_of(claim):
            raise PrepareError(
                f"old ResourceClaim with same name {name} and different UID {known.ref.uid} still exists"
            )
        if known is None:
            drivers = tuple(dict.fromkeys(str(each["driver"]) for each in results_of(claim)))
            ref = ClaimRef(namespace=namespace, name=name, uid=uid_of(claim))
            known = self._claims[namespace, name] = ClaimInfo(ref=ref, drivers=drivers)
        known.pods.add(uid_of(pod))
        return known

    async def _prepare(self, driver: str, claims: list[ClaimInfo]) -> None:
        answer = await self._plugin(driver).prepare([each.ref for each in claims])
        failed: list[str] = []
        for each in claims:
            devices = answer[each.ref.uid]
            if isinstance(devices, str):
                failed.append(f"NodePrepareResources failed for ResourceClaim {each.ref.name}: {devices}")
            else:
                each.devices[driver] = devices
        self._save()
        if failed:
            raise PrepareError("; ".join(failed))

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepare the claims that no other pod uses. After PluginError or PrepareError the caller tries again."""
        keys = [key for key, each in self._claims.items() if pod_uid in each.pods]
        if not keys:
            return
        async with self._locked(keys):
            own = [self._claims[key] for key in keys if key in self._claims and pod_uid in self._claims[key].pods]
            for each in own:
                if len(each.pods) > 1:
                    each.pods.discard(pod_uid)
            last = [each for each in own if pod_uid in each.pods]
            for driver, claims in _by_driver(last).items():
                answer = await self._plugin(driver).unprepare([each.ref for each in claims])
                failed = [
                    f"ResourceClaim {each.ref.name}: {answer[each.ref.uid]}" for each in claims if answer[each.ref.uid]
                ]
                if failed:
                    raise PrepareError(f"NodeUnprepareResources failed for {'; '.join(failed)}")
            for each in last:
                del self._claims[each.ref.namespace, each.ref.name]
            self._save()

    def cdi_ids(self, pod: Obj, container: Mapping[str, Any]) -> list[str]:
        """The CDI devices of one container: those of the claims and requests that it names."""
        names = {str(entry.get("name")): name for entry, name in pod_claims(pod)}
        found: list[str] = []
        for wanted in (container.get("resources") or {}).get("claims") or ():
            info = self._claims.get((namespace_of(pod), names.get(str(wanted["name"])) or ""))
            if info is None:
                raise PrepareError(f"claim {wanted['name']!r} of pod {name_of(pod)} is not prepared")
            found += info.cdi_ids(str(wanted.get("request") or ""))
        return list(dict.fromkeys(found))

    async def reconcile(self, live: Iterable[str]) -> None:
        """Unprepare the claims of pods that are not on this node any more; a failure waits for the next round."""
        known = set(live)
        for uid in sorted({uid for each in self._claims.values() for uid in each.pods} - known):
            try:
                await self.unprepare(uid)
            except (PluginError, PrepareError) as error:
                log.info("claims of pod %s not unprepared yet: %s", uid, error)

    @contextlib.asynccontextmanager
    async def _locked(self, keys: Iterable[tuple[str, str]]) -> AsyncIterator[None]:
        """One at a time per claim; locked in sorted order, so that two pods never wait for each other."""
        async with contextlib.AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield

    def _save(self) -> None:
        save(self._path, self.claims)


def _by_driver(claims: Iterable[ClaimInfo]) -> dict[str, list[ClaimInfo]]:
    grouped: dict[str, list[ClaimInfo]] = {}
    for each in claims:
        for driver in each.drivers:
            grouped.setdefault(driver, []).append(each)
    return grouped


@dataclass(kw_only=True)
class ClaimInfo:
    """A claim on this node: the pods that use it, and the devices that each driver prepared."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    devices: dict[str, list[PreparedDevice]] = field(default_factory=dict)
    prepared: bool = False

    def cdi_ids(self, request: str = "") -> list[str]:
        """CDI names for one request of the claim, or for all of them."""
        return [
            cdi_id
            for devices in self.devices.values()
            for device in devices
            if not request or not device.requests or request in device.requests
            for cdi_id in device.cdi_ids
        ]


class _Checkpoint(msgspec.Struct):
    data: str
    checksum: int
    version: str = "v3"


def save(path: Path, claims: Iterable[ClaimInfo]) -> None:
    data = msgspec.json.encode(list(claims), order="sorted").decode()
    beside = path.with_suffix(".tmp")
    beside.write_bytes(msgspec.json.encode(_Checkpoint(data, zlib.crc32(data.encode()))))
    beside.replace(path)


def load(path: Path) -> list[ClaimInfo]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
        if zlib.crc32(found.data.encode()) != found.checksum:
            raise ValueError("the checksum does not match")
        claims = msgspec.json.decode(found.data, type=list[ClaimInfo])
    except FileNotFoundError:
        return []
    except (ValueError, msgspec.MsgspecError) as error:
        aside = path.replace(path.with_suffix(".corrupt"))
        log.error("kubelet checkpoint %s: %s; set aside as %s", path, error, aside.name)
        return []
    for each in claims:
        each.prepared = False
    return claims
