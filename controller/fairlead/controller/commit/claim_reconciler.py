"""What a gang's pods and claims need besides a decision: templates made, names agreed on, strays and leaks removed.

Exists because the claim controller and users work on the same objects as we do, and because a gate cannot be added later:
the webhook gates what it does not know, and here it is let go. Idempotent: looked at again whenever the gang changes.
"""

from __future__ import annotations

import contextlib
import logging

from fairlead.api import legacy
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.controller.gangs import claims, recovery
from fairlead.controller.gangs.gangs import Gang
from fairlead.controller.gangs.members import Member
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch.caches import Caches
from fairlead.kube import errors, resources
from fairlead.kube.client import Client

log = logging.getLogger(__name__)

SWEEP_S = 30.0


class Reconciler:
    def __init__(self, client: Client, state: Caches, writer: Writer, work: Tasks, metrics: Metrics) -> None:
        self._client = client
        self._state = state
        self._writer = writer
        self._work = work
        self._metrics = metrics
        self._suspects: set[str] = set()  # claims that looked abandoned in the last sweep

    def gang(self, gang: Gang, *, busy: bool) -> None:
        """`busy`: its claims are being written; then they are left alone."""
        for stranger in gang.strangers:
            self._work.once(f"pod {stranger.pod.metadata.key}", self._let_go(stranger))
        for member in gang.members:
            for template in member.legacy:
                self._work.once(f"template {gang.namespace}/{template}", self._make_template(gang.namespace, template))
            if not busy and not member.pod.finished:
                self._agree_on_claims(member)

    def _agree_on_claims(self, member: Member) -> None:
        """One claim per template entry, and the pod's status names it; others that were made for it are deleted.

        The claim controller works from a cache: it may name a claim of its own after ours was allocated, even after the
        pod was bound, where nobody but us would ever put that right.
        """
        named = claims.names_used(member.pod)
        misnamed = {
            entry.name: entry.claim.metadata.name
            for entry in member.entries
            if entry.claim is not None
            and entry.template is not None
            and entry.reserved_for(member.uid)
            and named.get(entry.name) not in {None, entry.claim.metadata.name}
        }
        if misnamed:
            self._work.once(f"names of {member.uid}", self._name_again(member, misnamed))
            return
        for entry in member.entries:
            if entry.claim is None or entry.template is None:
                continue
            owned = self._state.claims_of(member.uid)
            for stray in claims.strays(member.pod, entry.name, named.get(entry.name), owned):
                self._work.once(f"claim {stray.metadata.uid}", self._writer.drop_stray(stray))

    async def _name_again(self, member: Member, right: dict[str, str]) -> None:
        log.info("pod %s: its status names another claim than the allocated one; named again", member.pod.metadata.key)
        with contextlib.suppress(errors.Conflict, errors.NotFound):  # it changed: its next change brings us back
            await self._writer.name_claims(member.pod, right)

    async def _make_template(self, namespace: str, name: str) -> None:
        manifest = legacy.template_manifest(name, namespace, driver=self._state.drivers[0])
        try:
            made = await self._client.create(resources.RESOURCE_CLAIM_TEMPLATES, manifest)
        except errors.AlreadyExists:
            made = await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace)
        self._state.templates.note(made)

    async def _let_go(self, member: Member) -> None:
        """The pod asks for nothing of ours; it was gated while that was not known."""
        log.info("pod %s asks for no device of ours; its gate is removed", member.pod.metadata.key)
        await self._writer.release_pod(member.pod, None, {})

    def sweep(self) -> None:
        """Allocations of ours that nobody uses; those that looked so in two sweeps are cleared."""
        found = {
            claim.metadata.uid: claim
            for claim in recovery.abandoned(
                self._state.claims.all(),
                drivers=self._state.drivers,
                used=lambda claim: bool(self._state.users(claim)),
            )
        }
        for uid in sorted(self._suspects & set(found)):
            log.warning("ResourceClaim %s is allocated, but nobody uses it: cleared", found[uid].metadata.key)
            self._metrics.swept.inc()
            self._work.once(f"claim {uid}", self._writer.take_back(found[uid], [], keep_allocation=False))
        self._suspects = set(found)
