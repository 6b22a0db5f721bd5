"""Writes to claims: creating, allocating, deallocating.

Two orders hold. Unless the claim was made here with it, the finalizer is written before the allocation: without it, the
allocation of a deleted named claim would leak. Deallocation ends with removing the finalizer: that changes the
resourceVersion, so a late write of this protocol can no longer succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api import legacy, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.api.drivers import legacy_driver
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError, Writes
from fairlead.controller.gangs.claims import claims
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, errors, resource, resources
from fairlead.kube.client import Patch

log = logging.getLogger(__name__)

RAW_TEMPLATES_BYTES_MAX = 4 * 2**20  # as JSON: of specs that are kept between the pods of a gang


class ClaimWrites(Writes):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._raw_templates: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._raw_bytes = 0

    async def create_claim(
        self,
        pod: core.Pod,
        entry: str,
        template: resource.ResourceClaimTemplate,
        source: ClaimSource | None,
        annotations: Mapping[str, str],
    ) -> resource.ResourceClaim:
        """The claim of one pod for one entry; its name is the source's where the webhook named it. `annotations`: more of them.

        An existing one of that name is used if it is this pod's. Raises GivenUpError where it is not, or the template is
        another than the one that was judged.
        """
        spec = await self._raw_spec(template, source)
        name = source.claim if source else claims.claim_name(pod.metadata.name, entry, self._random.choice)
        body = claims.manifest(pod, entry, template, name=name, raw_spec=spec)
        body["metadata"]["annotations"] |= annotations

        async def attempt() -> resource.ResourceClaim:
            try:
                return await self._client.create(resources.RESOURCE_CLAIMS, body)
            except errors.AlreadyExists:  # an answer was lost, or another has the name by chance
                found = await self._client.get(resources.RESOURCE_CLAIMS, name, pod.metadata.namespace)
                if claims.owned_by(found, pod, entry):
                    return found
                raise GivenUpError(
                    f"ResourceClaim {found.metadata.key} exists, and was not made for pod {pod.metadata.name}"
                ) from None

        created = await self._retry(attempt, f"ResourceClaim {pod.metadata.namespace}/{name}")
        self._caches.claims.note(created)
        return created

    async def _raw_spec(
        self, template: resource.ResourceClaimTemplate, source: ClaimSource | None
    ) -> Mapping[str, Any]:
        """The template's spec with every field, also those that our structs do not have. Specs are immutable."""
        if source is not None and source.is_legacy:
            manifest = legacy.template_manifest(
                source.template, template.metadata.namespace, driver=legacy_driver(self._caches.drivers)
            )
            spec: Mapping[str, Any] = manifest["spec"]["spec"]
            return spec
        key = (template.metadata.uid, template.metadata.name)
        if key not in self._raw_templates:
            raw = await self._retry(
                lambda: self._client.get(
                    resources.raw(resources.RESOURCE_CLAIM_TEMPLATES),
                    template.metadata.name,
                    template.metadata.namespace,
                ),
                f"ResourceClaimTemplate {template.metadata.key}",
            )
            if raw["metadata"]["uid"] != template.metadata.uid:
                raise GivenUpError(f"ResourceClaimTemplate {template.metadata.key} was deleted and created again")
            raw_spec: Mapping[str, Any] = raw["spec"]["spec"]
            size_bytes = len(msgspec.json.encode(raw_spec))
            if self._raw_bytes + size_bytes > RAW_TEMPLATES_BYTES_MAX:
                self._raw_templates.clear()
                self._raw_bytes = 0
            self._raw_templates[key] = raw_spec
            self._raw_bytes += size_bytes
            return raw_spec
        return self._raw_templates[key]

    async def delete_duplicate(self, claim: resource.ResourceClaim) -> None:
        """Deletes a claim that is not in use, if it is still as it was seen."""
        try:
            async with self._slots:
                await self._delete(claim)
        except errors.ApiError as error:  # tried again when it changes
            log.info("duplicate ResourceClaim %s not deleted: %s", claim.metadata.key, error)

    async def delete_made(self, pod: core.Pod, entry: str, name: str) -> None:
        """Deletes the claim that an admission made for this entry, if it exists, so that it counts for no quota.

        To be called when it is deallocated. Returns only when that is certain; one that is allocated again stays.
        """

        async def attempt() -> bool:
            try:
                seen = await self._client.get(resources.RESOURCE_CLAIMS, name, pod.metadata.namespace)
                if not claims.owned_by(seen, pod, entry) or seen.status.allocation is not None:
                    return True
                seen = await self._delete(seen)
            except errors.NotFound:
                return True
            except errors.Conflict:
                return False
            self._caches.claims.note_deleted(seen)
            return True

        await self._retry_until_certain(attempt, f"ResourceClaim {pod.metadata.namespace}/{name}")

    async def _delete(self, claim: resource.ResourceClaim) -> resource.ResourceClaim:
        """Without our finalizer, if it is still as it was seen; as it was last."""
        if names.CLAIM_FINALIZER in claim.metadata.finalizers:
            claim = await self._patch_finalizers(claim, present=False)
        meta = claim.metadata
        await self._client.delete(
            resources.RESOURCE_CLAIMS, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )
        return claim

    async def allocate(
        self, claim: resource.ResourceClaim, allocation: Mapping[str, Any] | None, pods: Sequence[PodRef]
    ) -> resource.ResourceClaim:
        """Writes the finalizer, then allocation and reservations in one patch. `allocation` None keeps the present one.

        Raises GivenUpError when the claim is gone, is being deleted, or was allocated by another.
        """
        expected = claim

        async def attempt() -> resource.ResourceClaim:
            nonlocal expected
            if names.CLAIM_FINALIZER not in expected.metadata.finalizers:
                expected = await self._patch_finalizers(expected, present=True)
            status: dict[str, Any] = {"reservedFor": _reservations(pods)}
            if allocation is not None:
                status["allocation"] = dict(allocation)
            return await self._patch_claim(expected, {"status": status}, subresource="status")

        for _ in range(CONFLICTS_MAX):
            problem = _unfit(expected, claim, fresh=allocation is not None)
            if problem:
                raise GivenUpError(problem)
            try:
                written = await self._retry(attempt, f"status of ResourceClaim {claim.metadata.key}")
            except errors.Conflict:
                seen = await self._read_claim(claim)
                if seen is not None and allocation is not None and _has(seen, allocation, pods):
                    written = seen  # an earlier attempt, whose answer was lost
                elif seen is None:
                    raise GivenUpError(f"ResourceClaim {claim.metadata.key} is gone") from None
                else:
                    expected = seen
                    continue
            except errors.NotFound:
                raise GivenUpError(f"ResourceClaim {claim.metadata.key} is gone") from None
            self._caches.claims.note(written)
            return written
        raise GivenUpError(f"ResourceClaim {claim.metadata.key} changed {CONFLICTS_MAX} times while it was written")

    async def deallocate(self, claim: resource.ResourceClaim, pods: Sequence[str], *, keep_allocation: bool) -> None:
        """Removes the reservations of these pods (UIDs), and the allocation unless it is to stay or is reserved for others.

        Returns only when that is certain; retries for as long as this replica leads.
        """
        uids = frozenset(pods)
        await self._retry_until_certain(
            lambda: self._deallocate_once(claim, uids, keep_allocation=keep_allocation),
            f"ResourceClaim {claim.metadata.key}",
        )

    async def _deallocate_once(
        self, claim: resource.ResourceClaim, pods: frozenset[str], *, keep_allocation: bool
    ) -> bool:
        seen = await self._read_claim(claim)
        if seen is None:
            return True
        try:
            reserved = [r.uid for r in seen.status.reserved_for if r.uid in pods]
            others = len(seen.status.reserved_for) > len(reserved)
            clear = seen.status.allocation is not None and not others and not keep_allocation
            if clear:
                status: dict[str, Any] = {"allocation": None, "reservedFor": None, "devices": None}
                seen = await self._patch_claim(seen, {"status": status}, subresource="status")
            elif reserved:
                status = {"reservedFor": [{"$patch": "delete", "uid": uid} for uid in reserved]}
                seen = await self._patch_claim(seen, {"status": status}, subresource="status")
            if seen.status.allocation is None and names.CLAIM_FINALIZER in seen.metadata.finalizers:
                seen = await self._patch_finalizers(seen, present=False)
        except errors.Conflict:
            return False
        except errors.NotFound:
            return True
        if not seen.metadata.deletion_timestamp:
            self._caches.claims.note(seen)
        return True

    async def _read_claim(self, claim: resource.ResourceClaim) -> resource.ResourceClaim | None:
        try:
            seen = await self._client.get(resources.RESOURCE_CLAIMS, claim.metadata.name, claim.metadata.namespace)
        except errors.NotFound:
            return None
        return seen if seen.metadata.uid == claim.metadata.uid else None

    async def _patch_finalizers(self, claim: resource.ResourceClaim, *, present: bool) -> resource.ResourceClaim:
        others = [name for name in claim.metadata.finalizers if name != names.CLAIM_FINALIZER]
        finalizers = [*others, names.CLAIM_FINALIZER] if present else others
        return await self._patch_claim(claim, {"metadata": {"finalizers": finalizers or None}})

    async def _patch_claim(
        self, claim: resource.ResourceClaim, body: Mapping[str, Any], *, subresource: str | None = None
    ) -> resource.ResourceClaim:
        meta = claim.metadata
        version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        return await self._client.patch(
            resources.RESOURCE_CLAIMS,
            meta.name,
            {**body, "metadata": {**body.get("metadata", {}), **version}},
            namespace=meta.namespace,
            kind=Patch.MERGE if subresource is None else Patch.STRATEGIC,
            subresource=subresource,
            field_manager=names.FIELD_MANAGER,
        )


def _reservations(pods: Sequence[PodRef]) -> list[dict[str, str]]:
    """What a strategic merge adds to the reservations, which it tells apart by UID; the others stay as they are."""
    return [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in sorted(pods)]


def _unfit(claim: resource.ResourceClaim, decided_on: resource.ResourceClaim, *, fresh: bool) -> str:
    """Why the claim can no longer take its allocation; "" when it can. `decided_on` is the claim as the decision saw it."""
    key = claim.metadata.key
    if claim.metadata.deletion_timestamp:
        return f"ResourceClaim {key} is being deleted"
    if fresh and claim.status.allocation is not None:
        return f"ResourceClaim {key} was allocated meanwhile"
    if not fresh and claim.status.allocation != decided_on.status.allocation:
        return f"ResourceClaim {key} lost or changed its allocation meanwhile"
    return ""


def _has(claim: resource.ResourceClaim, allocation: Mapping[str, Any], pods: Sequence[PodRef]) -> bool:
    """Whether the claim has exactly this allocation, and these reservations."""
    if claim.status.allocation is None:
        return False
    present = {(r.request, r.driver, r.pool, r.device, r.share_id) for r in claim.status.allocation.devices.results}
    results = allocation["devices"]["results"]
    planned = {(r["request"], r["driver"], r["pool"], r["device"], r.get("shareID")) for r in results}
    reserved = {reference.uid for reference in claim.status.reserved_for}
    return present == planned and {pod.uid for pod in pods} <= reserved
