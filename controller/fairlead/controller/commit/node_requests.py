"""Asks autoscalers for nodes: pods shown, ProvisioningRequests and placeholder pods made, followed and removed.

Level-triggered: what is wanted follows from the demand of the last decision, what is there is read from the cluster, and names follow from
what is wanted. So a crash or a new leader leaves nothing behind and makes nothing twice. Pods are shown from the loop (`sync`), for the
caches have them; objects beside it (`run`), every `POLL_S` while there is demand of such a mode. What the cluster refuses becomes a
note on the gang's status, with the next step, and one line of the log. Without a flavor that scales nothing is read or written after the
first look, which hides and removes what an earlier leader left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from fairlead.api import names
from fairlead.api.flavor import FlavorAutoscaling
from fairlead.controller.autoscaling import awaited, provisioning, shapes, visible
from fairlead.controller.autoscaling.shapes import NoShapeError
from fairlead.controller.book.book import GangState
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.commit.writes import GivenUpError, LeaseLostError
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.plan import NodeDemand
from fairlead.kube import errors, resources
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

POLL_S = 10.0
BLOCKED_S = 30.0  # until it is tried again to show or hide pods, where that was refused
ANNOTATION = {names.AWAITING_NODES: "true"}
LABELS = f"{names.MANAGED_BY}={names.MANAGED_BY_VALUE}"


class NodeRequests(Part):
    """The requests for nodes of one term."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._namespace = shared.options.namespace  # Fairlead's own
        self._demand = shared.book.all(GangState.demand)
        self._blocked = shared.book.all(GangState.show_again_at)
        self._demanded = False  # at the last decision
        self._wake = asyncio.Event()
        self._first = True
        self._looked = False  # for placeholders of the leader before
        self._requests_made = self._placeholders_made = False

    # -- called by the loop ----------------------------------------------------------------------------------------

    def sync(self, changed: Iterable[GangId], *, decided: bool) -> None:
        """After a run of the loop: `changed` are gangs with something new; `decided`: it made a decision."""
        if decided and (self._demand or self._demanded):
            self._metrics.note_node_demand(self._demand.values())
            changed = {*changed, *self._demand}
            self._demanded = bool(self._demand)
            self._wake.set()
        if not (self._first or self._demand or len(self._book.all(GangState.shown))):
            return
        if self._first:
            self._first = False
            self._wake.set()
        for gang_id in sorted(changed):
            gang = self._caches.gangs.get(gang_id)
            if gang is None:
                self._show_no_more(gang_id)
            else:
                self._sync_pods(gang, self._visible(gang_id))

    def _visible(self, gang_id: GangId) -> NodeDemand | None:
        each = self._demand.get(gang_id)
        return each if each is not None and each.mode == "Visible" and each.state == "Asked" else None

    def _show_no_more(self, gang_id: GangId) -> None:
        state = self._book[gang_id]
        state.shown = state.rewrites = None

    def _sync_pods(self, gang: Gang, demand: NodeDemand | None) -> None:
        state = self._book[gang.id]
        hide = demand is None and bool(visible.to_hide(gang))
        if hide or demand is not None:
            state.shown = True
        if (state.show_again_at or 0.0) > self._wall() or state.busy:
            return  # an admission writes to its pods; it is looked at again when that has ended
        if demand is None:
            if hide:
                self._start(gang, lambda: self._hide(gang))
            elif state.shown:
                self._show_no_more(gang.id)
            return
        todo = visible.to_show(gang)
        left = [member for member in todo if visible.may_be_shown_again(state, member.pod)]
        if len(left) < len(todo):
            self._refused([gang.id], "Visible", _rewritten(gang))
        if visible.claims_to_make(gang) or (left and not visible.awaits_claims(gang)):
            self._start(gang, lambda: self._show(gang, demand))

    def _start(self, gang: Gang, job: Callable[[], Awaitable[None]]) -> None:
        """Does nothing while the gang's last job runs: it is looked at again when that has ended."""

        async def run() -> None:
            with self._refusals([gang.id], "Visible", "its pods cannot be shown to autoscalers"):
                await job()

        self._tasks.start(
            f"nodes for {gang.namespace}/{gang.name}", run(), ended=lambda: self._caches.triggers.gang(gang.id)
        )

    # -- mode Visible ----------------------------------------------------------------------------------------------

    async def _show(self, gang: Gang, demand: NodeDemand) -> None:
        """The claims first, then the condition: an autoscaler that sees the pod reads its claims."""
        for member, claim in visible.claims_to_make(gang):
            assert claim.template is not None
            await self._writer.create_claim(member.pod, claim.name, claim.template, claim.source, ANNOTATION)
        if visible.awaits_claims(gang):
            return  # the gang changes when they come
        for member in visible.to_show(gang):
            pod = self._caches.latest(member.pod)
            if self._visible(gang.id) is None or not visible.may_be_shown(pod) or visible.shown(pod):
                continue
            if not visible.may_be_shown_again(self._book[gang.id], pod):
                continue
            if await self._writer.set_scheduled_condition(pod, visible.shown_condition(gang, demand, self._wall())):
                visible.note_shown(self._book[gang.id], pod)
                self._note([gang.id], "")

    async def _hide(self, gang: Gang) -> None:
        for member in visible.to_hide(gang):
            pod = self._caches.latest(member.pod)
            if visible.may_be_shown(pod) and visible.shown(pod):
                await self._writer.set_scheduled_condition(pod, visible.hidden_condition(self._wall()))

    # -- objects ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Never returns. Raises LeaseLostError."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            due: float | None = POLL_S
            try:
                due = await self.run_once()
            except LeaseLostError:
                raise
            except Exception:  # one object that breaks a look must not stop the others for good
                log.exception("autoscalers could not be asked for nodes; tried again in %.0f s", POLL_S)
                self._metrics.errors.labels("task").inc()
            if due is not None:
                await self._until(due)

    async def _until(self, timeout_s: float) -> None:
        """Until the demand changed, or so long."""
        slept = asyncio.ensure_future(self._sleep(timeout_s))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((slept, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            slept.cancel()
            woken.cancel()
        self._wake.set()

    async def run_once(self) -> float | None:
        """Brings objects in line with the demand; returns in how many seconds to look again, None: when the demand changes."""
        requests, pods = self._wanting("ProvisioningRequest"), self._wanting("Placeholder")
        if requests or self._requests_made:
            self._requests_made = await self._sync_requests(requests) or bool(requests)
        if pods or self._placeholders_made or self._any_placeholder():
            self._placeholders_made = await self._sync_placeholders(pods) or bool(pods)
        over = [gang_id for gang_id, until in self._blocked.items() if until <= self._wall()]
        for gang_id in over:
            self._book[gang_id].show_again_at = None
        self._caches.triggers.gangs(over)
        following = requests or pods or self._requests_made or self._placeholders_made or self._blocked
        return POLL_S if following else None

    def _wanting(self, mode: str) -> dict[GangId, tuple[Gang, FlavorAutoscaling]]:
        found: dict[GangId, tuple[Gang, FlavorAutoscaling]] = {}
        scaling = self._caches.rules.settings().autoscaling
        for gang_id, each in self._demand.items():
            gang = self._caches.gangs.get(gang_id)
            if (
                each.mode == mode
                and each.state == "Asked"
                and gang is not None
                and gang.gated
                and each.flavor in scaling
            ):
                found[gang_id] = (gang, scaling[each.flavor])
        return found

    async def _sync_requests(self, wanting: dict[GangId, tuple[Gang, FlavorAutoscaling]]) -> bool:
        """Whether some are left that are not wanted."""
        try:
            raw = (await self._client.list(resources.PROVISIONING_REQUESTS, labels=LABELS)).items
        except errors.ApiError as error:
            self._refused(wanting, "ProvisioningRequest", _unlisted(error))
            return False
        left: dict[tuple[str, str], list[provisioning.Seen]] = {}  # by namespace and gang
        for each in raw:
            found = provisioning.seen(each)
            left.setdefault((each["metadata"]["namespace"], found.gang), []).append(found)
        for gang_id, (gang, scaling) in sorted(wanting.items()):
            with self._refusals([gang_id], "ProvisioningRequest", "no ProvisioningRequest can be made for it"):
                own = left.pop((gang.namespace, "/".join(gang_id)), [])
                gang_object = self._caches.gang_object(gang_id)
                if gang_object is None:
                    continue  # its owner, which is made a moment later
                await self._step(gang_id, provisioning.wanted(gang, gang_object, scaling), own)
        return await self._delete_requests(left)

    async def _step(self, gang_id: GangId, want: provisioning.Wanted, own: list[provisioning.Seen]) -> None:
        step = provisioning.next_step(want, own, self._wall())
        if step.create is not None:
            for template in want.templates(step.create):
                await self._create(resources.POD_TEMPLATES, template)
            await self._create(resources.PROVISIONING_REQUESTS, want.request(step.create))
            log.info("gang %s: ProvisioningRequest %s/%s made", want.gang, want.namespace, want.name(step.create))
        if any(each.state == "Failed" for each in own) and step.create is not None:
            self._metrics.node_request_failures.labels("ProvisioningRequest").inc()
        await self._delete_requests({(want.namespace, want.gang): list(step.delete)})
        self._note([gang_id], step.note)

    async def _delete_requests(self, left: dict[tuple[str, str], list[provisioning.Seen]]) -> bool:
        """With their templates, which have names that begin with theirs. Whether some could not be deleted."""
        failed = False
        for (namespace, _), found in left.items():
            for each in found:
                try:
                    await self._delete(resources.PROVISIONING_REQUESTS, each.name, namespace, each.uid)
                    for number in range(provisioning.POD_SETS_MAX):
                        if not await self._delete(resources.POD_TEMPLATES, f"{each.name}-{number}", namespace):
                            break
                except errors.ApiError as error:
                    log.warning("ProvisioningRequest %s/%s not deleted: %s", namespace, each.name, error)
                    failed = True
        return failed

    async def _create(self, resource: resources.Resource[Raw], body: Raw) -> None:
        with contextlib.suppress(errors.AlreadyExists):  # by the leader before, or the answer was lost
            await self._client.create(resource, body)

    async def _delete(
        self, resource: resources.Resource[Any], name: str, namespace: str, uid: str | None = None, **more: Any
    ) -> bool:
        """Whether there was one."""
        try:
            await self._client.delete(resource, name, namespace, uid=uid, **more)
        except (errors.NotFound, errors.Conflict):
            return False
        return True

    # -- placeholders ----------------------------------------------------------------------------------------------

    def _any_placeholder(self) -> bool:
        """At the first look of a term: what the leader before left."""
        looked, self._looked = self._looked, True
        return not looked and bool(shapes.existing(self._caches.pods.all(), self._namespace))

    async def _sync_placeholders(self, wanting: dict[GangId, tuple[Gang, FlavorAutoscaling]]) -> bool:
        """Whether some are left that are not wanted."""
        there = {pod.metadata.name: pod for pod in shapes.existing(self._caches.pods.all(), self._namespace)}
        failed = False
        for gang_id, (gang, scaling) in sorted(wanting.items()):
            with self._refusals([gang_id], "Placeholder", "no placeholder pods can be made for it"):
                wanted = shapes.wanted(gang, scaling, namespace=self._namespace)
                bound = 0
                for body in wanted:
                    pod = there.pop(body["metadata"]["name"], None)
                    if pod is None:
                        await self._create_placeholder(body)
                    elif pod.spec.node_name:
                        bound += 1
                self._note([gang_id], f"{len(wanted)} placeholder pods ask for nodes, {bound} of them have one")
        for pod in there.values():
            meta = pod.metadata
            try:
                await self._delete(resources.PODS, meta.name, meta.namespace, meta.uid, grace_period_s=0)
            except errors.ApiError as error:
                log.warning("placeholder pod %s not deleted: %s", pod.metadata.key, error)
                failed = True
        return failed

    async def _create_placeholder(self, body: Raw) -> None:
        with contextlib.suppress(errors.AlreadyExists):
            self._caches.pods.note(await self._client.create(resources.PODS, body))

    # -- what the cluster refuses ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _refusals(self, gangs: list[GangId], mode: str, what: str) -> Iterator[None]:
        try:
            yield
        except NoShapeError as error:
            self._refused(gangs, mode, str(error))
        except (errors.ApiError, GivenUpError) as error:
            if mode == "Visible":
                for gang_id in gangs:
                    self._book[gang_id].show_again_at = self._wall() + BLOCKED_S
                self._wake.set()
            self._refused(gangs, mode, f"{what}: {error}{_next_step(error, mode)}")

    def _refused(self, gangs: Iterable[GangId], mode: str, text: str) -> None:
        if self._note(gangs, text):
            log.warning("autoscaling mode %s: %s", mode, text)
            self._metrics.node_request_failures.labels(mode).inc()

    def _note(self, gangs: Iterable[GangId], text: str) -> bool:
        """Into the gangs' status; whether it is new for one."""
        new = [gang_id for gang_id in gangs if awaited.note(self._book[gang_id], text[:900])]
        self._caches.triggers.gangs(new)
        return bool(new)


VALUES = {
    "ProvisioningRequest": "autoscaling.provisioningRequests=true",
    "Placeholder": "autoscaling.placeholders=true",
}
"""Values of the chart that give the controller the rights which the mode needs."""


def _next_step(error: Exception, mode: str) -> str:
    if not isinstance(error, errors.Forbidden):
        return ""
    if mode not in VALUES:
        return "; apply the chart's policies and roles of this version"
    return f"; set {VALUES[mode]} in the chart's values, or spec.autoscaling.mode of the Flavor to Visible or Off"


def _rewritten(gang: Gang) -> str:
    return (
        f"another component keeps writing the PodScheduled condition of pods of gang {gang.namespace}/{gang.name}: see their managedFields; with "
        "a kube-scheduler that has SchedulerPreEnqueuePodStatus use spec.autoscaling.mode ProvisioningRequest or Placeholder"
    )


def _unlisted(error: errors.ApiError) -> str:
    if isinstance(error, errors.NotFound):
        return (
            "this cluster does not serve provisioningrequests.autoscaling.x-k8s.io/v1: install the CRD and run cluster-autoscaler with "
            "--enable-provisioning-requests, or set spec.autoscaling.mode of the Flavor to Visible or Placeholder"
        )
    return f"ProvisioningRequests cannot be read: {error}{_next_step(error, 'ProvisioningRequest')}"
