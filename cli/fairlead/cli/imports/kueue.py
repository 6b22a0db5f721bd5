"""Kueue: ClusterQueues and Cohorts become Queues, ResourceFlavors Flavors (and a TenancyPolicy), LocalQueues who may use a queue.

- A ClusterQueue is a leaf, a Cohort the queue above it; a Cohort that is only named exists, as in Kueue.
- nominalQuota is deserved. A root borrows from nobody: a ClusterQueue without cohort has it as its limit, a root Cohort
  `borrowingLimit: 0`. A Cohort's own quota comes on top of its members'; what a ClusterQueue does not list it may not use.
- Pods name a LocalQueue, whose name is of a namespace; a ClusterQueue's Queue takes the namespaces of its LocalQueues, so that
  they find it. ResourceFlavors that mean the same devices are one Flavor, with their quotas added.

Source: Kueue's API reference for kueue.x-k8s.io/v1beta1 and v1beta2 (0.19), and its pages on cluster queues, cohorts and fair sharing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from fairlead.api.queue import FLAVORS_MAX
from fairlead.cli.imports.devices import Kind, kind_of, narrow_of
from fairlead.cli.imports.documents import Document
from fairlead.cli.imports.draft import NOTHING, Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Fields
from fairlead.cli.imports.manifests import Api, Found, note_unread, objects
from fairlead.cli.imports.model import Imported, Source, plain, shown

GROUP = "kueue.x-k8s.io"
_CHECK = "Fairlead admits a gang when its queue and the devices allow it, without further checks"
_STATUS = "is made by Kueue for each job: jobs are not imported"
API = Api(
    system="Kueue",
    versions={GROUP: ("v1beta1", "v1beta2", "v1alpha1")},
    kinds=("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass"),
    others={
        "AdmissionCheck": _CHECK,
        "ProvisioningRequestConfig": _CHECK,
        "MultiKueueConfig": "a Queue is of one cluster",
        "MultiKueueCluster": "a Queue is of one cluster",
        "Workload": _STATUS,
    },
)
_PREEMPTION = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIM = ("Never", "LowerPriority", "Any")
NAMESPACE_LABEL = "kubernetes.io/metadata.name"


@dataclass(slots=True)
class _Flavor:
    """A ResourceFlavor: what its labels say of devices, and what is left for pods."""

    source: Source
    narrow: tuple[tuple[str, str], ...]
    labels: dict[str, str]
    tolerations: list[dict[str, Any]]


@dataclass(slots=True)
class _State:
    draft: Draft
    flavors: dict[str, _Flavor] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)
    """Of each ClusterQueue the ResourceFlavors with devices."""


def read(documents: Iterable[Document]) -> Imported:
    """Raises RefusedError."""
    draft = Draft()
    state = _State(draft)
    found = objects(documents, API, draft)
    by_kind = {kind: [each for each in found if each.kind == kind] for kind in API.kinds}
    for each in by_kind["ResourceFlavor"]:
        state.flavors[each.name] = _flavor(each, {topology.name for topology in by_kind["Topology"]}, draft)
    for each in by_kind["Cohort"]:
        _cohort(each, state)
    for each in by_kind["ClusterQueue"]:
        _cluster_queue(each, state)
    _local_queues(by_kind["LocalQueue"], by_kind["ClusterQueue"], state)
    _settle_quotas(draft)
    for each in by_kind["Topology"]:
        _topology(each, draft)
    for each in by_kind["WorkloadPriorityClass"]:
        _priority(each, draft)
    return draft.build()


def _flavor(each: Found, topologies: set[str], draft: Draft) -> _Flavor:
    spec = each.spec
    narrow, labels = narrow_of(spec.strings("nodeLabels"))
    if spec.mappings("nodeTaints"):
        text = "a Flavor does not know its nodes' taints: kube-scheduler keeps pods that do not tolerate them off the nodes"
        draft.note(each.source, "spec.nodeTaints", text)
    tolerations = [_toleration(entry) for entry in spec.mappings("tolerations")]
    topology = spec.text("topologyName")
    if topology is not None:
        if topologies and topology not in topologies:
            text = f"there is no Topology {shown(topology)}: add it to the files, or remove the field"
            draft.fault(each.source, "spec.topologyName", text)
        draft.note(
            each.source,
            "spec.topologyName",
            "a gang names a level itself, with fairlead.dev/topology on its pods",
        )
    note_unread(draft, None, spec)
    return _Flavor(each.source, narrow, labels, tolerations)


def _toleration(entry: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("key", "value", "effect"):
        if (text := entry.text(key)) is not None:
            found[key] = text
    found["operator"] = entry.choice("operator", ("Exists", "Equal"), "Equal")
    if (seconds := entry.whole("tolerationSeconds")) is not None:
        found["tolerationSeconds"] = seconds
    return found


def _cohort(each: Found, state: _State) -> None:
    spec = each.spec
    key = ("Cohort", each.name)
    queue = DraftQueue(each.source, each.name, parent_path="spec.parentName")
    state.draft.queues[key] = queue
    parent = spec.text("parentName" if spec.has("parentName") or each.version == "v1beta2" else "parent")
    if parent is not None:
        queue.parent = ("Cohort", parent)
    queue.quotas = _quotas(spec, key, state)
    _weight(spec, queue, state.draft, key)
    note_unread(state.draft, key, spec)


def _cluster_queue(each: Found, state: _State) -> None:
    spec, draft = each.spec, state.draft
    key = ("ClusterQueue", each.name)
    path = "cohortName" if spec.has("cohortName") or not spec.has("cohort") else "cohort"
    queue = DraftQueue(each.source, each.name, parent_path=f"spec.{path}")
    draft.queues[key] = queue
    cohort = spec.text(path)
    queue.parent = None if cohort is None else ("Cohort", cohort)
    queue.quotas = _quotas(spec, key, state)
    if cohort is None:
        for kind, quota in queue.quotas.items():
            if quota.borrowing is not None or quota.lending is not None:
                draft.fault(
                    each.source,
                    "spec.resourceGroups",
                    f"{kind.name}: borrowingLimit and lendingLimit need a cohort: remove them, or write {path}",
                )
    queue.spec["ordering"] = spec.choice("queueingStrategy", ("StrictFIFO", "BestEffortFIFO"), "BestEffortFIFO")
    queue.spec["namespaceSelector"] = _selector(spec)
    _preemption(spec, queue, draft, key)
    _weight(spec, queue, draft, key)
    if (stop := spec.choice("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None")) != "None":
        draft.note(
            each.source,
            "spec.stopPolicy",
            f"{stop}: the Queue admits gangs once it is applied; apply it when it may",
            queue=key,
        )
    _checks(spec, draft, key)
    for name, text in (
        ("flavorFungibility", "a claim says which devices would do, and in which order (firstAvailable)"),
        ("admissionScope", "past use counts between Queues, not between the LocalQueues of one"),
        ("concurrentAdmissionPolicy", "a gang is admitted once, on devices that exist"),
    ):
        if spec.raw(name):
            draft.note(each.source, f"spec.{name}", text, queue=key)
    note_unread(draft, key, spec)


def _checks(spec: Fields, draft: Draft, key: Any) -> None:
    for check in spec.texts("admissionChecks"):
        draft.note(spec.source, "spec.admissionChecks", f"{plain(check)}: {_CHECK}", queue=key)
    for rule in spec.mapping("admissionChecksStrategy").mappings("admissionChecks"):
        draft.note(spec.source, rule.path, f"{plain(rule.text('name') or '')}: {_CHECK}", queue=key)


def _preemption(spec: Fields, queue: DraftQueue, draft: Draft, key: Any) -> None:
    rules = spec.mapping("preemption")
    within = rules.choice("withinClusterQueue", _PREEMPTION, "Never")
    queue.spec["preemption"] = "Never" if within == "Never" else "LowerPriority"
    if within == "LowerOrNewerEqualPriority":
        text = "LowerOrNewerEqualPriority: LowerPriority is written, so a gang of the same priority is not evicted"
        draft.note(spec.source, rules.at("withinClusterQueue"), text, queue=key)
    reclaim = rules.choice("reclaimWithinCohort", _RECLAIM, "Never")
    if queue.parent is not None and reclaim != "Any":
        text = f"{reclaim}: a Queue takes back what it deserves from those that borrow it, whatever their gangs' priority; minRuntime or disruptionBudget in the others bounds it"
        draft.note(spec.source, rules.at("reclaimWithinCohort"), text, queue=key)
    borrow = rules.mapping("borrowWithinCohort")
    if borrow.choice("policy", ("Never", "LowerPriority"), "Never") != "Never":
        text = "beyond what it deserves a Queue takes back up to its fair share only, by weights"
        draft.note(spec.source, borrow.path, text, queue=key)
    borrow.whole("maxPriorityThreshold")
    note_unread(draft, key, rules, borrow)


def _weight(spec: Fields, queue: DraftQueue, draft: Draft, key: Any) -> None:
    fair = spec.mapping("fairSharing")
    weight = fair.amount("weight")
    if weight is not None:
        for quota in queue.quotas.values():
            quota.weight = weight
        if not queue.quotas and weight != 1:
            text = f"{float(weight):g} has no place: a weight is of a flavor, and the cohort lists none; write it into spec.flavors"
            draft.note(spec.source, fair.at("weight"), text, queue=key)
    note_unread(draft, key, fair)


def _quotas(spec: Fields, key: Any, state: _State) -> dict[Kind, Quota]:
    found: dict[Kind, Quota] = {}
    names: set[str] = set()
    others: dict[str, str] = {}
    merged: dict[Kind, list[str]] = {}
    for group in spec.mappings("resourceGroups"):
        group.ignore("coveredResources")
        for entry in group.mappings("flavors"):
            name = entry.needed("name")
            if name is None:
                continue
            flavor = state.flavors.get(name)
            if flavor is None:
                entry.fault(
                    "name", f"there is no ResourceFlavor {shown(name)}: add it to the files, or name one that exists"
                )
            if name in names:
                entry.fault("name", f"{shown(name)} is listed twice: merge the two entries")
            names.add(name)
            for resource in entry.mappings("resources"):
                kind = _resource(resource, flavor, others)
                if kind is None or flavor is None:
                    continue
                quota = Quota(
                    deserved=resource.amount("nominalQuota") or Fraction(0),
                    borrowing=resource.amount("borrowingLimit"),
                    lending=resource.amount("lendingLimit"),
                )
                note_unread(state.draft, key, resource)
                wanted = name if kind.profile is None else f"{name}-mig-{kind.profile}"
                state.draft.flavor(kind, flavor.source, wanted)
                state.used.setdefault(key[1], []).append(name) if key[0] == "ClusterQueue" else None
                merged.setdefault(kind, []).append(name)
                if kind in found:
                    found[kind].add(quota)
                else:
                    found[kind] = quota
            note_unread(state.draft, key, entry)
        note_unread(state.draft, key, group)
    for resource_name, path in others.items():
        text = f"{plain(resource_name)}: a Queue counts GPUs and MIG devices; bound it with a ResourceQuota"
        state.draft.note(spec.source, path, text, queue=key)
    for flavors in merged.values():
        if len(flavors) > 1:
            text = f"{', '.join(map(plain, flavors))} are the same devices to a Flavor, as their node labels say nothing of devices: their quotas are added"
            state.draft.note(spec.source, "spec.resourceGroups", text, queue=key)
    return found


def _resource(resource: Fields, flavor: _Flavor | None, others: dict[str, str]) -> Kind | None:
    """The kind of device; None for a resource that is none, which is noted once by its name."""
    name = resource.needed("name")
    if name is None:
        return None
    kind = kind_of(name, () if flavor is None else flavor.narrow)
    if kind is None:
        for key in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            resource.amount(key, most=None)
        others.setdefault(name, resource.path)
    return kind


def _selector(spec: Fields) -> dict[str, Any] | None:
    """As it stands; None for `{}` (every namespace), NOTHING where it is absent, as in Kueue."""
    if not spec.has("namespaceSelector"):
        return NOTHING
    selector = spec.mapping("namespaceSelector")
    labels = selector.strings("matchLabels")
    rules = []
    for entry in selector.mappings("matchExpressions"):
        operator = entry.choice("operator", ("In", "NotIn", "Exists", "DoesNotExist"), "Exists")
        rule: dict[str, Any] = {"key": entry.needed("key") or "", "operator": operator}
        values = entry.texts("values")
        rules.append(rule | ({"values": values} if values else {}))
    found: dict[str, Any] = {"matchLabels": labels} if labels else {}
    return (found | ({"matchExpressions": rules} if rules else {})) or None


def _local_queues(local_queues: list[Found], cluster_queues: list[Found], state: _State) -> None:
    """Whose namespaces each ClusterQueue takes, and what pods that name a LocalQueue have to name."""
    draft = state.draft
    taken: dict[str, dict[str, list[str]]] = {each.name: {} for each in cluster_queues}
    of_namespace: dict[str, set[str]] = {}
    for each in local_queues:
        spec = each.spec
        wanted = spec.needed("clusterQueue")
        if not each.namespace:
            draft.fault(each.source, "metadata.namespace", "is required: write the namespace of the LocalQueue")
        if wanted is None:
            continue
        if wanted not in taken:
            draft.fault(
                each.source,
                "spec.clusterQueue",
                f"there is no ClusterQueue {shown(wanted)}: add it to the files, or remove the LocalQueue",
            )
            continue
        taken[wanted].setdefault(each.namespace, []).append(each.name)
        of_namespace.setdefault(each.namespace, set()).add(wanted)
        if (stop := spec.choice("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None")) != "None":
            draft.note(each.source, "spec.stopPolicy", f"{stop}: pods of the namespace are admitted")
        if spec.mapping("fairSharing"):
            draft.note(
                each.source,
                "spec.fairSharing",
                "the LocalQueues of a ClusterQueue are one Queue; write a Queue below it for each to weigh them",
            )
        spec.ignore("fairSharing")
        note_unread(draft, None, spec)
    _note_names(local_queues, of_namespace, draft)
    for each in cluster_queues:
        _namespaces(each, taken[each.name], of_namespace, state)


def _note_names(local_queues: list[Found], of_namespace: dict[str, set[str]], draft: Draft) -> None:
    names = {queue.wanted for queue in draft.queues.values()}
    for each in local_queues:
        wanted = each.spec.text("clusterQueue")
        if wanted is None or each.name == wanted:
            continue
        if each.name in names:
            text = f"pods that name it would be in the Queue {plain(each.name)}, which is another's: write fairlead.dev/queue: {plain(wanted)} on them"
            draft.note(each.source, "metadata.name", text)
        elif len(of_namespace.get(each.namespace, ())) > 1:
            text = (
                f"the namespace has LocalQueues of {len(of_namespace[each.namespace])} ClusterQueues, so pods that name this one do not "
                f"find {plain(wanted)} by their namespace: write fairlead.dev/queue: {plain(wanted)} on them"
            )
            draft.note(each.source, "metadata.name", text)


def _namespaces(each: Found, taken: dict[str, list[str]], of_namespace: dict[str, set[str]], state: _State) -> None:
    draft, key = state.draft, ("ClusterQueue", each.name)
    queue = draft.queues[key]
    own = queue.spec.pop("namespaceSelector")
    if own is NOTHING:
        draft.note(
            each.source,
            "spec.namespaceSelector",
            "is absent, so no namespace may use it, as in Kueue",
            lost=False,
            queue=key,
        )
        queue.spec["namespaceSelector"] = NOTHING
    elif taken:
        rule = {"key": NAMESPACE_LABEL, "operator": "In", "values": sorted(taken)}
        if len(taken) > 64:
            text = f"{len(taken)} namespaces have LocalQueues of it, more than the 64 that a selector names: label them, and write a namespaceSelector"
            draft.note(each.source, "spec.namespaceSelector", text, queue=key)
            rule = {"key": NAMESPACE_LABEL, "operator": "Exists"}
        rules = [*(own or {}).get("matchExpressions", ()), rule]
        queue.spec["namespaceSelector"] = (own or {}) | {"matchExpressions": rules}
    else:
        draft.note(
            each.source,
            "",
            "no LocalQueue leads to it: pods have to name it with fairlead.dev/queue",
            lost=False,
            queue=key,
        )
        if own is not None:
            queue.spec["namespaceSelector"] = own
    shared = sorted(name for name in taken if len(of_namespace[name]) > 1)
    _policy(each, queue, shared, state)


def _policy(each: Found, queue: DraftQueue, shared: list[str], state: _State) -> None:
    """What Kueue adds to the pods that it admits to a flavor: tolerations, and the labels of its nodes."""
    key = ("ClusterQueue", each.name)
    flavors = [state.flavors[name] for name in dict.fromkeys(state.used.get(each.name, ())) if name in state.flavors]
    tolerations: list[dict[str, Any]] = []
    for flavor in flavors:
        tolerations += [entry for entry in flavor.tolerations if entry not in tolerations]
    labels = flavors[0].labels if len(flavors) == 1 else {}
    for flavor in flavors if len(flavors) > 1 else ():
        for label in flavor.labels:
            text = f"{each.source.subject} has several flavors, so its pods name their nodes by a nodeSelector"
            state.draft.note(flavor.source, f"spec.nodeLabels[{plain(label)}]", text, queue=key)
    spec: dict[str, Any] = {}
    if tolerations:
        spec["tolerations"] = {"tolerations": tolerations}
    if labels:
        rules = [{"key": label, "operator": "In", "values": [value]} for label, value in labels.items()]
        spec["nodeAffinity"] = {"matchExpressions": rules}
    selector = queue.spec.get("namespaceSelector")
    if not spec or selector is NOTHING:
        return
    if shared or selector is None:
        why = (
            f"{', '.join(map(plain, shared[:3]))} also have other queues" if shared else "its namespaces are not known"
        )
        text = f"tolerations and node labels of its flavors are not written as a TenancyPolicy, since {why}: write them on the pods"
        state.draft.note(each.source, "spec.resourceGroups", text, queue=key)
        return
    state.draft.policies[key] = (each.source, {"namespaceSelector": selector, **spec})


def _settle_quotas(draft: Draft) -> None:
    """Cohorts that are only named; what roots and cohorts deserve; what a ClusterQueue may not use."""
    for key, queue in list(draft.queues.items()):
        if queue.parent is not None and queue.parent not in draft.queues:
            name = queue.parent[1]  # type: ignore[index]
            draft.queues[queue.parent] = DraftQueue(Source(queue.source.where, "Cohort", plain(name)), name)
            text = f"Cohort {plain(name)} is only named, here first: a Queue without quota of its own is written for it"
            draft.note(queue.source, queue.parent_path, text, lost=False, queue=key)
    children: dict[Any, list[Any]] = {}
    for key, queue in draft.queues.items():
        children.setdefault(queue.parent, []).append(key)
    for key, queue in draft.queues.items():
        if queue.parent is None:
            _settle_root(key, draft, children)
    for key, queue in draft.queues.items():
        if key not in children and key[0] == "Cohort":  # type: ignore[index]
            queue.spec["namespaceSelector"] = NOTHING
    for key, queue in draft.queues.items():
        if key[0] == "ClusterQueue":  # type: ignore[index]
            _forbid_others(key, queue, draft)


def _forbid_others(key: Any, queue: DraftQueue, draft: Draft) -> None:
    """What it does not list: here a queue without a quota of a flavor may use all of it."""
    missing = [kind for kind in draft.flavors if kind not in queue.quotas]
    text = ""
    if not draft.flavors:
        text = "no ClusterQueue lists devices, so none may use any, where a Queue without flavors may use all: write a Flavor, and limit: 0 of it"
    elif len(queue.quotas) + len(missing) <= FLAVORS_MAX:
        queue.quotas |= {kind: Quota(limit=Fraction(0)) for kind in missing}
    else:
        text = f"it may use {len(missing)} kinds of devices that it does not list, as there are too many to forbid each: name the flavors in a TenancyPolicy"
    if text:
        draft.note(queue.source, "spec.resourceGroups", text, queue=key)


def _settle_root(root: Any, draft: Draft, children: dict[Any, list[Any]]) -> None:
    """From the leaves up: a cohort's own quota is added to what its members deserve; a root borrows nothing."""
    order: list[Any] = []
    rest = [root]
    while rest:
        key = rest.pop()
        order.append(key)
        rest += children.get(key, ())
    subtree: dict[Any, dict[Kind, Fraction]] = {}
    for key in reversed(order):
        queue = draft.queues[key]
        total = {kind: quota.deserved for kind, quota in queue.quotas.items()}
        for child in children.get(key, ()):
            for kind, deserved in subtree[child].items():
                total[kind] = total.get(kind, Fraction(0)) + deserved
        subtree[key] = total
        for kind, quota in queue.quotas.items():
            quota.deserved = total[kind]
    queue = draft.queues[root]
    for kind, deserved in subtree[root].items():
        quota = queue.quotas.setdefault(kind, Quota(deserved=deserved))
        if root[0] == "ClusterQueue":
            quota.limit = deserved
        else:
            quota.borrowing = Fraction(0)


def _topology(each: Found, draft: Draft) -> None:
    spec = each.spec
    labels = [level.text("nodeLabel") for level in spec.mappings("levels")]
    named = next((plain(label) for label in reversed(labels) if label), "LABEL")
    text = f"a gang names the level on its pods, as fairlead.dev/topology: required:{named} (or preferred:)"
    draft.note(each.source, "spec.levels", text)
    note_unread(draft, None, spec)


def _priority(each: Found, draft: Draft) -> None:
    value = each.fields.whole("value")
    if value is None:
        if not each.fields.has("value"):
            each.fields.fault("value", "is required: write it")
        return
    name = plain(each.name)
    text = f"{value}: a gang has the priority of its pods; create the PriorityClass {name} of this value and name it as their priorityClassName"
    draft.note(each.source, "value", text)
