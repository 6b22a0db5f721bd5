"""Informer handlers: each change updates the tables and notes which gangs it concerns and whether a decision may differ.

Handlers do no work beyond that; `Caches.refresh` rebuilds the gangs that were noted, once for many changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fairlead.api import names
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.evictions import disruption
from fairlead.controller.gangs.held import vacancies
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import gang_id
from fairlead.controller.watch import indexes
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.volumes import by_volume_claim
from fairlead.engine.inventory.nodes import notice_of
from fairlead.kube import batch, core, resource
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

FEW = 256  # pods that name one object: as many as a claim can be reserved for


class Handlers:
    def __init__(self, informers: Informers, *, reads_usage: Callable[[], bool]) -> None:
        """`reads_usage`: whether what drivers say of claims' devices matters to running gangs."""
        self._reads_usage = reads_usage
        self._informers, self._pods = informers, informers.pods
        self._tables, self._gangs, self._triggers = informers.tables, informers.gangs, informers.triggers

    def subscribe(self) -> None:
        informers = self._informers
        informers.nodes.subscribe(self._node)
        informers.slices.subscribe(self._slice)
        informers.taint_rules.subscribe(self._taint_rule)
        informers.device_classes.subscribe(self._device_class)
        informers.claims.subscribe(self._claim)
        informers.pods.subscribe(self._pod)
        informers.templates.subscribe(self._template)
        informers.namespaces.subscribe(self._namespace)
        informers.gang_objects.subscribe(self._gang_object)
        informers.others.subscribe(self._sized, self._gangs_in, self._workload_priority)
        informers.disruption_budgets.subscribe(self._disruption_budget)
        informers.resource_quotas.subscribe(self._resource_quota)
        informers.jobs.subscribe(self._job)
        informers.volumes.subscribe(self._volume_claim, self._volume)

    # -- devices and nodes -----------------------------------------------------------------------------------------

    def _node(self, change: Change[core.Node]) -> None:
        if change.new is None:
            self._tables.drop_node(change.key)
            self._triggers.decide()
            # Rare; gangs whose pods are about to bind there need another step.
            self._gangs_of(lambda pod: bool(pod.spec.resource_claims) and not pod.finished)
        elif change.old is None or indexes.decision_fields(change.old) != indexes.decision_fields(change.new):
            self._tables.set_node(change.new)
            self._triggers.decide()
            if _looks_other(change.old, change.new):
                name = change.key
                self._gangs_of(lambda pod: pod.spec.node_name == name and not pod.finished)

    def _slice(self, change: Change[resource.ResourceSlice]) -> None:
        """Devices of other drivers are kube-scheduler's to give out: no decision sees them, but of those allowed in claims beside managed ones."""
        if change.object.spec.driver not in (*self._informers.drivers, *self._informers.shared_drivers):
            return
        if change.new is None:
            self._tables.drop_slice(change.key)
        elif change.old is not None and indexes.publishes_the_same(change.old.metadata, change.new.metadata):
            return
        else:
            self._tables.set_slice(change.new)
        self._triggers.decide()

    def _taint_rule(self, change: Change[resource.DeviceTaintRule]) -> None:
        if change.new is None:
            self._tables.drop_taint_rule(change.key)
        elif change.old is None or change.old.spec != change.new.spec:
            self._tables.set_taint_rule(change.new)
            _warn_of_wide_rule(change.new)
        else:
            return
        self._triggers.decide()

    def _device_class(self, change: Change[resource.DeviceClass]) -> None:
        if change.new is None:
            self._tables.classes.pop(change.key, None)
        else:
            self._tables.classes[change.key] = change.new
        if _extended_resource(change.old) != _extended_resource(change.new):
            self._tables.namespace_quotas.classes_changed()
        self._triggers.gangs(self._gangs)
        self._triggers.decide(urgent=True)

    # -- pods and claims -------------------------------------------------------------------------------------------

    def _claim(self, change: Change[resource.ResourceClaim]) -> None:
        claim = change.object
        self._tables.set_claim(claim.metadata.uid, change.new)
        if self._tables.namespace_quotas.set_claim(change.old, change.new):
            self._triggers.decide()
        held, holds = (c is not None and c.status.allocation is not None for c in (change.old, change.new))
        if held and not holds:
            self._tables.leftovers.pop(claim.metadata.uid, None)
            self._triggers.decide()
        old, new = change.old, change.new
        if self._pods.count("claim", change.key) > FEW:
            self._triggers.crowd(claim.metadata.namespace, f"claim {change.key}")
            return
        users = list(self._informers.pods_of(claim).values())
        if old and new and indexes.only_usage_changed(old, new) and not self._reads_usage():
            # A gang that is being admitted writes the claim with its resourceVersion.
            users = [pod for pod in users if pod.has_gate(names.ADMISSION_GATE)]
        self._triggers.gangs(map(gang_id, users), soon=change.old is None)

    def _pod(self, change: Change[core.Pod]) -> None:
        pod = change.object
        ended = change.new is None or pod.finished
        if change.new is None:
            self._note_leftover(pod)
        if ended:
            self._tables.drop_pod(pod.metadata.uid)
        else:
            self._tables.set_pod(pod)
        if change.old and change.new and indexes.reads_the_same(change.old, change.new):
            return
        for seen in (change.old, change.new):
            if seen is not None and indexes.may_be_member(seen):
                self._triggers.gang(gang_id(seen), soon=change.old is None)
        if change.new is None or (ended and not (change.old and change.old.finished)):
            self._triggers.decide()  # its node has room again
            for key in by_volume_claim(change.old or pod):
                self._volume_claim(key)  # a claim for one pod is free again
        elif self._tables.neighbours_matter and _seen_anew(change.old, pod):
            self._triggers.decide()  # it may be the neighbour that a gang waits for

    def _volume_claim(self, key: str) -> None:
        self._users("volume-claim", key, lambda pod: pod.has_gate(names.ADMISSION_GATE))

    def _volume(self) -> None:
        """Rare: volumes come and go with their claims."""
        self._gangs_of(lambda pod: bool(pod.spec.volumes) and pod.has_gate(names.ADMISSION_GATE))

    def _note_leftover(self, pod: core.Pod) -> None:
        """The pod was deleted: its claims stay allocated until the claim controller has seen that."""
        namespace = pod.metadata.namespace
        named = (self._informers.claims.get(f"{namespace}/{name}") for name in claims.names_used(pod).values())
        known = self._gangs.get(gang_id(pod))
        left = vacancies.leftover(
            pod, [each for each in named if each is not None], gang_id(pod), known.queue if known else None
        )
        if left is not None:
            self._tables.leftovers |= dict.fromkeys(left.claims, left)

    def _template(self, change: Change[resource.ResourceClaimTemplate]) -> None:
        self._users("template", change.key, soon=True)

    def _users(
        self, index: str, key: str, concerns: Callable[[core.Pod], bool] = lambda _: True, *, soon: bool = False
    ) -> None:
        """The gangs of the pods that name an object."""
        if self._pods.count(index, key) > FEW:
            self._triggers.crowd(key.partition("/")[0], f"{index} {key}")
        else:
            self._triggers.gangs(map(gang_id, filter(concerns, self._pods.by_index(index, key))), soon=soon)

    def _gangs_of(self, concerns: Callable[[core.Pod], bool]) -> None:
        self._triggers.gangs(gang_id(pod) for pod in self._pods.all() if concerns(pod))

    # -- what gangs refer to ---------------------------------------------------------------------------------------

    def _namespace(self, change: Change[core.Namespace]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._gangs_in(change.key)
            self._select_namespaces_again()
            self._triggers.decide(urgent=True)

    def _select_namespaces_again(self) -> None:
        """Terms that select namespaces by label select others now."""
        for pod in self._pods.by_index("namespaces", indexes.SELECTED):
            if not pod.finished:
                self._tables.set_pod(pod)
                self._triggers.gang(gang_id(pod))

    def _sized(self, namespace: str, name: str) -> None:
        """What says the size of a gang changed."""
        if (namespace, name) in self._gangs:
            self._triggers.gang((namespace, name))

    def _workload_priority(self, name: str) -> None:
        """Rare: an administrator made, changed or deleted a class."""
        self._gangs_of(lambda pod: pod.metadata.labels.get(names.KUEUE_PRIORITY) == name and not pod.finished)
        self._triggers.decide()

    def _gang_object(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or _decided_otherwise(change.old, change.new):
            namespace, _, name = change.key.partition("/")
            self._triggers.gang((namespace, name))

    def _disruption_budget(self, change: Change[Raw]) -> None:
        budgets = self._tables.pod_budgets
        before = budgets.pop(change.key, None)
        if change.new is not None:
            budgets[change.key] = disruption.read_budget(change.new)
        now = budgets.get(change.key)
        if before is None or now is None or before.selector != now.selector:
            self._gangs_in(change.key.partition("/")[0])
        if before != now:
            self._triggers.decide()

    def _resource_quota(self, change: Change[Raw]) -> None:
        may_fit, other_resources = self._tables.namespace_quotas.set_quota(change.key, change.new)
        if other_resources:
            self._gangs_in(change.key.partition("/")[0])
        if may_fit or other_resources:
            self._triggers.decide()

    def _job(self, change: Change[batch.Job]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status):
            return
        job = change.object
        for key in indexes.by_gang_of_job(job):
            namespace, _, name = key.partition("/")
            self._triggers.gang((namespace, name))
        key = indexes.in_namespace(job.metadata.namespace, job.metadata.uid)
        self._users("job", key)
        for raw in self._informers.gang_objects.by_index("owner", key):  # an evicted gang of one without its pod
            self._triggers.gang((raw["metadata"]["namespace"], raw["metadata"]["name"]))
        ends = [(each.spec.active_deadline_seconds, each.status.start_time) if each else None for each in (old, new)]
        if job.spec.active_deadline_seconds is not None and ends[0] != ends[1]:
            self._gangs_in(job.metadata.namespace)

    def _gangs_in(self, namespace: str) -> None:
        self._triggers.crowd(namespace, "")


def _decided_otherwise(old: Raw, new: Raw) -> bool:
    """Whether a hold, or what is recorded of evictions, is another."""
    if (old.get("spec") or {}).get("hold") != (new.get("spec") or {}).get("hold"):
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    return any(before.get(field) != after.get(field) for field in (decisions.DECISIONS, decisions.RESERVED))


def _looks_other(old: core.Node | None, new: core.Node) -> bool:
    """Whether its gangs are to be told something of the node: that it goes, does not answer, or is back."""
    if old is None:
        return notice_of(new) is not None
    return (notice_of(old), old.ready, old.spec.taints) != (notice_of(new), new.ready, new.spec.taints)


def _seen_anew(old: core.Pod | None, new: core.Pod) -> bool:
    """Whether terms of other pods select it as they did not before: it has a node now, or other labels."""
    if old is None or bool(old.spec.node_name) != bool(new.spec.node_name):
        return bool(new.spec.node_name)
    return bool(new.spec.node_name) and (old.metadata.labels, old.metadata.deletion_timestamp) != (
        new.metadata.labels,
        new.metadata.deletion_timestamp,
    )


def _extended_resource(device_class: resource.DeviceClass | None) -> str:
    return (device_class.spec.extended_resource_name or "") if device_class is not None else ""


def _warn_of_wide_rule(rule: resource.DeviceTaintRule) -> None:
    """Kubernetes 1.34 has selectors in its rules that are not evaluated here; a tainted device too many waits, one too few
    would be allocated against the rule.
    """
    selector = rule.spec.device_selector
    if selector is None or not (selector.device_class_name or selector.selectors):
        return
    field = "deviceClassName" if selector.device_class_name else "selectors"
    log.warning(
        "DeviceTaintRule %s: spec.deviceSelector.%s is not evaluated; its taint counts for every device of driver %s, pool %s, "
        "device %s; select by these three alone",
        rule.metadata.name,
        field,
        selector.driver or "any",
        selector.pool or "any",
        selector.device or "any",
    )
