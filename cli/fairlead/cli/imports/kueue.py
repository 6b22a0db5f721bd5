"""Kueue: ClusterQueues and Cohorts become Queues, ResourceFlavors Flavors (and a TenancyPolicy), LocalQueues who may use a queue.

- A ClusterQueue is a leaf, a Cohort the queue above it; a Cohort that is only named exists, as in Kueue.
- nominalQuota is deserved. A root borrows nothing: a ClusterQueue without cohort has it as its limit, a root Cohort
  `borrowingLimit: 0`. A Cohort's own quota comes on top of its members'; what a ClusterQueue does not list it may not use.
- Pods name a LocalQueue, whose name is of a namespace; a ClusterQueue's Queue takes the namespaces of its LocalQueues, so that
  they find it. ResourceFlavors that mean the same devices are one Flavor, with their quotas added.

Source: Kueue's API reference for kueue.x-k8s.io/v1beta1 and v1beta2 (0.19), and its pages on cluster queues, cohorts and fair sharing.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from fairlead.cli.imports.draft import NOTHING, Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Api, Fields, Found, note_present, note_unread, objects
from fairlead.cli.imports.kinds import Kind, kind_of, narrow_of
from fairlead.cli.imports.kueue_tree import NodeFlavor, Reading, give_namespaces, settle_quotas
from fairlead.cli.imports.model import Document, Imported, plain, shown

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


def read(documents: Iterable[Document]) -> Imported:
    """Raises RefusedError."""
    draft = Draft()
    state = Reading(draft)
    found = objects(documents, API, draft)
    by_kind = {kind: [each for each in found if each.kind == kind] for kind in API.kinds}
    for each in by_kind["ResourceFlavor"]:
        state.flavors[each.name] = _flavor(each, {topology.name for topology in by_kind["Topology"]}, draft)
    for each in by_kind["Cohort"]:
        _cohort(each, state)
    for each in by_kind["ClusterQueue"]:
        _cluster_queue(each, state)
    give_namespaces(by_kind["LocalQueue"], by_kind["ClusterQueue"], state)
    settle_quotas(draft)
    for each in by_kind["Topology"]:
        _topology(each, draft)
    for each in by_kind["WorkloadPriorityClass"]:
        _priority(each, draft)
    return draft.build()


def _flavor(each: Found, topologies: set[str], draft: Draft) -> NodeFlavor:
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
            "a flavor has no topology: pods name a level, as kueue.x-k8s.io/podset-required-topology, which is read as it is, or "
            "fairlead.dev/topology",
        )
    note_unread(draft, None, spec)
    return NodeFlavor(each.source, narrow, labels, tolerations, tuple(sorted(spec.strings("nodeLabels").items())))


def _toleration(entry: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("key", "value", "effect"):
        if (text := entry.text(key)) is not None:
            found[key] = text
    found["operator"] = entry.choice("operator", ("Exists", "Equal"), "Equal")
    if (seconds := entry.whole("tolerationSeconds")) is not None:
        found["tolerationSeconds"] = seconds
    return found


def _cohort(each: Found, state: Reading) -> None:
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


def _cluster_queue(each: Found, state: Reading) -> None:
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
        queue.spec["hold"] = {"reason": f"stopPolicy {stop} of its ClusterQueue"} | (
            {"evict": True} if stop == "HoldAndDrain" else {}
        )
    _checks(spec, draft, key)
    note_present(
        draft,
        key,
        spec,
        {
            "flavorFungibility": "a claim says which devices would do, and in which order (firstAvailable)",
            "admissionScope": "past use counts between Queues, not between the LocalQueues of one",
            "concurrentAdmissionPolicy": "a gang is admitted once, on devices that exist",
        },
    )
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


def _quotas(spec: Fields, key: Any, state: Reading) -> dict[Kind, Quota]:
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
                    deserved=resource.amount("nominalQuota", most=kind.most) or Fraction(0),
                    borrowing=resource.amount("borrowingLimit", most=kind.most),
                    lending=resource.amount("lendingLimit", most=kind.most),
                )
                note_unread(state.draft, key, resource)
                state.draft.flavor(kind, flavor.source, _name(kind, name))
                if key[0] == "ClusterQueue" and not kind.resource:
                    state.used.setdefault(key[1], []).append(name)
                merged.setdefault(kind, []).append(name)
                if kind in found:
                    found[kind].add(quota)
                else:
                    found[kind] = quota
            note_unread(state.draft, key, entry)
        note_unread(state.draft, key, group)
    state.draft.note_others(spec.source, others, key)
    for kind, flavors in merged.items():
        if len(flavors) > 1:
            same = (
                f"mean the same {kind.resource}, as their node labels are the same"
                if kind.resource
                else "are the same devices to a Flavor, as their node labels say nothing of devices"
            )
            text = f"{', '.join(map(plain, flavors))} {same}: their quotas are added"
            state.draft.note(spec.source, "spec.resourceGroups", text, queue=key)
    return found


def _name(kind: Kind, flavor: str) -> str:
    """What the Flavor of a kind is called that a ResourceFlavor of this name means."""
    if kind.resource:
        return f"{flavor}-{kind.resource}" if kind.nodes else kind.resource
    return flavor if kind.profile is None else f"{flavor}-mig-{kind.profile}"


def _resource(resource: Fields, flavor: NodeFlavor | None, others: dict[str, str]) -> Kind | None:
    """The kind; None for a resource that no Flavor counts, which is noted once by its name."""
    name = resource.needed("name")
    if name is None:
        return None
    kind = kind_of(name) if flavor is None else kind_of(name, flavor.narrow, flavor.nodes)
    if kind is None:
        for key in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            resource.amount(key, most=None)
        others.setdefault(name, resource.path)
    return kind


def _selector(spec: Fields) -> dict[str, Any] | None:
    """The selector as it stands; None for `{}` (every namespace), NOTHING where it is absent, as in Kueue."""
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


def _topology(each: Found, draft: Draft) -> None:
    spec = each.spec
    labels = [level.text("nodeLabel") for level in spec.mappings("levels")]
    named = next((plain(label) for label in reversed(labels) if label), "LABEL")
    text = (
        f"the node labels are the levels: pods' kueue.x-k8s.io/podset-required-topology: {named} goes on counting, as does "
        f"fairlead.dev/topology: required:{named} (or preferred:)"
    )
    draft.note(each.source, "spec.levels", text)
    note_unread(draft, None, spec)


def _priority(each: Found, draft: Draft) -> None:
    value = each.fields.whole("value")
    if value is None:
        if not each.fields.has("value"):
            each.fields.fault("value", "is required: write it")
        return
    name = plain(each.name)
    text = (
        f"{value}: leave it while Kueue's CRDs are there: the label kueue.x-k8s.io/priority-class: {name} goes on meaning it; before they "
        f"go, create the PriorityClass {name} of this value and name it as the pods' priorityClassName"
    )
    draft.note(each.source, "value", text)
