"""What LocalQueues and quotas of Kueue come to: whose pods each ClusterQueue takes, what its flavors add to pods as a TenancyPolicy, and the quotas
of a tree of Queues (of roots, of cohorts, and of devices that a ClusterQueue does not list).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from fairlead.api.queue import FLAVORS_MAX
from fairlead.cli.imports.draft import NAMESPACE_LABEL, NOTHING, Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Found, note_unread
from fairlead.cli.imports.kinds import Kind
from fairlead.cli.imports.model import Source, plain, shown


@dataclass(slots=True)
class NodeFlavor:
    """A ResourceFlavor: what its labels say of devices, and what is left for pods."""

    source: Source
    narrow: tuple[tuple[str, str], ...]
    labels: dict[str, str]
    tolerations: list[dict[str, Any]]
    nodes: tuple[tuple[str, str], ...]
    """All its labels: on which nodes its cpu, memory and pods count."""


@dataclass(slots=True)
class Reading:
    draft: Draft
    flavors: dict[str, NodeFlavor] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)
    """Of each ClusterQueue the ResourceFlavors with devices."""


def give_namespaces(local_queues: list[Found], cluster_queues: list[Found], state: Reading) -> None:
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


def _namespaces(each: Found, taken: dict[str, list[str]], of_namespace: dict[str, set[str]], state: Reading) -> None:
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


def _policy(each: Found, queue: DraftQueue, shared: list[str], state: Reading) -> None:
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


def settle_quotas(draft: Draft) -> None:
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
    if all(kind.resource for kind in draft.flavors):
        text = "no ClusterQueue lists devices, so none may use any, where a Queue without flavors may use all: write a Flavor, and limit: 0 of it"
    if len(queue.quotas) + len(missing) <= FLAVORS_MAX:
        queue.quotas |= {kind: Quota(limit=Fraction(0)) for kind in missing}
    elif not text:
        text = f"it may use {len(missing)} kinds of devices and resources that it does not list, as there are too many to forbid each: name the flavors in a TenancyPolicy"
    if text:
        draft.note(queue.source, "spec.resourceGroups", text, queue=key)


def _settle_root(root: Any, draft: Draft, children: dict[Any, list[Any]]) -> None:
    """Adds a cohort's own quota to what its members deserve, from the leaves up; a root borrows nothing."""
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
