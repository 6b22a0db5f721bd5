"""What the pods and claims of a gang need apart from a decision, whenever the gang changes.

- A template that a named claim comes from is read where the watch has not shown it.
- The template behind a legacy request (`nvidia.com/gpu: 8`) is created: the webhook writes only its name into the pod.
- One claim per entry that names a template is in use, and the pod's status names it, also before kubelet; duplicates are deleted.
- A gated pod without a managed claim is ungated: the webhook gates what it cannot judge, because a gate cannot be added
  later.
- Garbage collection: an orphaned allocation, seen in two sweeps, is cleared.
The claim controller and users write the same objects; each step may be repeated.
"""

from __future__ import annotations

import contextlib
import logging

from fairlead.api import legacy
from fairlead.api.drivers import legacy_driver
from fairlead.controller.commit.eviction_writes import Writer
from fairlead.controller.commit.kubelet_wakes import KubeletWakes
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, PodClaim
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors, resources
from fairlead.kube.client import Client

log = logging.getLogger(__name__)

SWEEP_S = 30.0
UNSEEN_TEMPLATE_S = 10.0
LOOKED_AT_MAX = 4096
READS_MAX = 50  # unseen templates of one namespace in UNSEEN_TEMPLATE_S: thousands may have been deleted


class ClaimReconciler:
    def __init__(self, client: Client, caches: Caches, writer: Writer, tasks: Tasks, metrics: Metrics) -> None:
        self._client = client
        self._caches = caches
        self._writer = writer
        self._tasks = tasks
        self._metrics = metrics
        self._looked_at: dict[tuple[str, str], float] = {}  # unseen templates, and when they were read; unix seconds
        self._reads: dict[str, tuple[float, int]] = {}  # by namespace: since when, and how many were read
        self._suspects: set[str] = set()  # UIDs of claims orphaned in the last sweep
        self._wakes = KubeletWakes(caches, writer, tasks)

    def close(self) -> None:
        """The term ends."""
        self._wakes.close()

    def reconcile(self, gang: Gang, now: float, *, busy: bool) -> float | None:
        """`busy`: a task is writing the gang's claims; then they are left alone. Returns when it is to be called again."""
        again: list[float] = []
        for member in gang.unmanaged:
            self._tasks.start(f"pod {member.pod.metadata.key}", self._ungate(member))
        for member in gang.members:
            for name in member.legacy_templates:
                self._tasks.start(f"template {gang.namespace}/{name}", self._create_template(gang.namespace, name))
            again += [self._look_for_template(gang.namespace, name, now) for name in member.unseen_templates]
            if not busy and not member.pod.finished and self._agree_on_claims(member):
                due = self._wakes.step(member.pod, now)
                again += [] if due is None else [due]
        return min(again, default=None)

    def _agree_on_claims(self, member: Member) -> bool:
        """Names the claims in use in the pod's status; then, and when it returns True, duplicates are deleted.

        The claim controller works from a cache: it may name its own claim after ours was allocated, even after the pod was
        bound.
        """
        named = claims.names_used(member.pod)
        misnamed = {
            pod_claim.name: pod_claim.claim.metadata.name
            for pod_claim in member.claims
            if pod_claim.claim is not None
            and _chosen(pod_claim)
            and pod_claim.reserved_for(member.uid)
            and named.get(pod_claim.name) not in {None, pod_claim.claim.metadata.name}
        }
        if misnamed:
            self._tasks.start(f"names of {member.uid}", self._correct_names(member, misnamed))
            return False
        for pod_claim in member.claims:
            if pod_claim.claim is None or not _chosen(pod_claim):
                continue
            owned = self._caches.lookup.claims_of(member.pod)
            for duplicate in claims.duplicates(member.pod, pod_claim.name, named.get(pod_claim.name), owned):
                self._tasks.start(f"claim {duplicate.metadata.uid}", self._writer.delete_duplicate(duplicate))
        return True

    async def _correct_names(self, member: Member, claim_names: dict[str, str]) -> None:
        log.info("pod %s: its status names another claim than the allocated one; corrected", member.pod.metadata.key)
        with contextlib.suppress(errors.Conflict, errors.NotFound):  # tried again with the pod's next change
            await self._writer.name_claims(member.pod, claim_names)

    async def _create_template(self, namespace: str, name: str) -> None:
        manifest = legacy.template_manifest(name, namespace, driver=legacy_driver(self._caches.drivers))
        try:
            created = await self._client.create(resources.RESOURCE_CLAIM_TEMPLATES, manifest)
        except errors.AlreadyExists:
            created = await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace)
        self._caches.templates.note(created)

    def _look_for_template(self, namespace: str, name: str, now: float) -> float:
        """Reads a template that the watch has not shown: it may be behind. Returns when it is to be read again."""
        due = self._looked_at.get((namespace, name), float("-inf")) + UNSEEN_TEMPLATE_S
        if due > now:
            return due
        since, reads = self._reads.get(namespace, (now, 0))
        if now >= since + UNSEEN_TEMPLATE_S:
            since, reads = now, 0
        if reads >= READS_MAX:
            return since + UNSEEN_TEMPLATE_S
        self._reads[namespace] = since, reads + 1
        if len(self._looked_at) > LOOKED_AT_MAX:
            self._looked_at.clear()
        self._looked_at[namespace, name] = now
        self._tasks.start(f"template {namespace}/{name}", self._read_template(namespace, name))
        return now + UNSEEN_TEMPLATE_S

    async def _read_template(self, namespace: str, name: str) -> None:
        with contextlib.suppress(errors.NotFound):
            self._caches.templates.note(await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace))

    async def _ungate(self, member: Member) -> None:
        log.info("pod %s has no claim for a managed device; its gate is removed", member.pod.metadata.key)
        await self._writer.release_pod(member.pod, None, {})

    def collect_garbage(self) -> None:
        """Clears allocations that were orphaned in the last sweep and still are."""
        orphaned = {
            claim.metadata.uid: claim
            for claim in recovery.orphaned_allocations(
                self._caches.claims.all(),
                drivers=self._caches.drivers,
                used=lambda claim: bool(self._caches.users(claim)),
            )
        }
        for uid in sorted(self._suspects & set(orphaned)):
            log.warning("ResourceClaim %s: orphaned allocation cleared", orphaned[uid].metadata.key)
            self._metrics.orphaned_claims.inc()
            self._tasks.start(f"claim {uid}", self._writer.deallocate(orphaned[uid], [], keep_allocation=False))
        self._suspects = set(orphaned)


def _chosen(pod_claim: PodClaim) -> bool:
    """Whether the entry names a template, so that its claim is one of several, and named in the pod's status."""
    return pod_claim.template is not None and pod_claim.source is None
