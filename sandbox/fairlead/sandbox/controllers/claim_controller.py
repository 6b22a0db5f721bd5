"""The resourceclaim controller: creates claims for pods, and deallocates and deletes them when their pods are done.

The decisions are in claims.py. Here: which change enqueues which key, and the writes, each conditional on the
resourceVersion that was decided on. Runs as system:serviceaccount:kube-system:resource-claim-controller.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping
from typing import Any, Final

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Change
from fairlead.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Raw, raw
from fairlead.sandbox.controllers import claims
from fairlead.sandbox.controllers.claims import PodFact
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import Informers, by_claim
from fairlead.sandbox.objects import (
    Obj,
    finalizers_of,
    is_done,
    key_of,
    name_of,
    namespace_of,
    reserved_for,
    split_key,
    uid_of,
)

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "ResourceClaimController"
_CLAIMS: Final = raw(RESOURCE_CLAIMS)
_PODS: Final = raw(PODS)
DELETED_MAX: Final = 4096


class ClaimController(Loop[str]):
    name = "claim controller"
    workers = 50  # --concurrent-resourceclaim-syncs of 1.36

    def __init__(self, client: Client, informers: Informers, events: EventRecorder) -> None:
        super().__init__()
        self._client = client
        self._events = events
        self._pods = informers.of(PODS)
        self._claims = informers.of(RESOURCE_CLAIMS)
        self._templates = informers.of(RESOURCE_CLAIM_TEMPLATES)
        self._deleted: collections.OrderedDict[str, None] = collections.OrderedDict()  # UIDs of deleted pods
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(self._claim_changed)

    # -- which change enqueues which key ---------------------------------------------------------------------------

    def _pod_changed(self, change: Change[Raw]) -> None:
        pod = change.object
        if change.new is None:
            self._deleted[uid_of(pod)] = None
            while len(self._deleted) > DELETED_MAX:
                self._deleted.popitem(last=False)
        if change.new is None or is_done(pod):
            for key in by_claim(pod):
                self.queue.add(f"claim:{key}")
            for claim in self._claims.by_index("owner", uid_of(pod)):
                self.queue.add(f"claim:{key_of(claim)}")
        elif pod.get("spec", {}).get("resourceClaims"):
            self.queue.add(f"pod:{change.key}")

    def _claim_changed(self, change: Change[Raw]) -> None:
        self.queue.add(f"claim:{change.key}")
        for pod in self._pods.by_index("claim", change.key):
            self.queue.add(f"pod:{key_of(pod)}")

    async def sync(self, key: str) -> None:
        kind, _, rest = key.partition(":")
        if kind == "pod":
            await self._sync_pod(rest)
        else:
            await self._sync_claim(rest)

    # -- pods ------------------------------------------------------------------------------------------------------

    async def _sync_pod(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        namespace = namespace_of(pod)

        def claim(name: str) -> Obj | None:
            return self._claims.get(f"{namespace}/{name}")

        work = claims.pod_work(
            pod,
            claim=claim,
            owned=self._claims.by_index("owner", uid_of(pod)),
            template=lambda name: self._templates.get(f"{namespace}/{name}"),
        )
        made = dict(work.adopts)
        for entry, wanted in work.creates.items():
            try:
                created = await self._client.create(_CLAIMS, wanted, namespace, field_manager=FIELD_MANAGER)
            except errors.ApiError as error:
                self._warn(pod, f"PodResourceClaim {entry}: creating ResourceClaim: {error}")
                raise
            self._claims.note(created)
            made[entry] = name_of(created)
        if made:
            await self._name_claims(pod, made)
        for each in claims.claims_to_reserve(pod, claim=claim):
            consumer = {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}
            status = {**each["status"], "reservedFor": [*reserved_for(each), consumer]}
            self._claims.note(await self._client.replace(_CLAIMS, {**each, "status": status}, subresource="status"))
        if work.errors:
            text = "; ".join(work.errors)
            self._warn(pod, text)
            raise errors.NotFound(text)

    def _warn(self, pod: Obj, text: str) -> None:
        self._events.record(Regarding.of(PODS, pod), "FailedResourceClaimCreation", text, type="Warning")

    async def _name_claims(self, pod: Obj, made: Mapping[str, str]) -> None:
        # With the UID the write is a conflict, not a new pod, when the pod was replaced meanwhile.
        body: dict[str, Any] = {
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "status": {"resourceClaimStatuses": claims.claim_statuses(pod, made)},
        }
        patched = await self._client.patch(
            _PODS,
            name_of(pod),
            body,
            namespace=namespace_of(pod),
            kind=Patch.APPLY,
            subresource="status",
            field_manager=FIELD_MANAGER,
            force=True,
        )
        self._pods.note(patched)

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        namespace, name = split_key(key)
        facts = {str(each.get("uid")): await self._consumer(claim, each) for each in reserved_for(claim)}
        work = claims.claim_work(
            claim,
            consumer=lambda each: facts[str(each.get("uid"))],
            owner=lambda pod, uid: claims.pod_fact(self._pods.get(f"{namespace}/{pod}"), uid),
        )
        try:
            if work.status is not None:
                claim = await self._client.replace(_CLAIMS, {**claim, "status": work.status}, subresource="status")
                self._claims.note(claim)
            if work.drop_finalizer:
                kept = [each for each in finalizers_of(claim) if each != names.CLAIM_FINALIZER]
                metadata = {**claim["metadata"], "finalizers": kept}
                claim = await self._client.replace(_CLAIMS, {**claim, "metadata": metadata})
            if work.delete:
                await self._client.delete(_CLAIMS, name, namespace, uid=uid_of(claim))
        except errors.NotFound:
            log.debug("claim %s: does not exist any more", key)

    async def _consumer(self, claim: Obj, consumer: Mapping[str, Any]) -> PodFact:
        if not claims.is_pod(consumer):
            return PodFact.LIVE
        uid, name, namespace = str(consumer["uid"]), str(consumer["name"]), namespace_of(claim)
        if uid in self._deleted:
            return PodFact.GONE
        fact = claims.pod_fact(self._pods.get(f"{namespace}/{name}"), uid)
        if fact is not PodFact.UNKNOWN:
            return fact
        # Not in the cache (yet): a claim must not be taken from a pod that is just being scheduled, so ask the API.
        try:
            found = await self._client.get(_PODS, name, namespace)
        except errors.NotFound:
            return PodFact.GONE
        return claims.pod_fact(found, uid)
