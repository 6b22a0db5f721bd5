"""Volcano: each Queue of scheduling.volcano.sh becomes a Queue of ours.

- deserved is deserved, capability the limit, weight the weight. guarantee is never lent: what deserved has beyond it is the
  lendingLimit, and without deserved the guarantee is what the queue deserves.
- `reclaimable: false` is a disruption budget of no evictions. dequeueStrategy is the ordering, priority the priority.
- Any pod may name any queue, and those that name none are of `default`.

Source: Volcano's API reference for scheduling.volcano.sh/v1beta1 (1.15), and its pages on queues and on hierarchical queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from fairlead.cli.imports.draft import Draft, DraftQueue, Quota
from fairlead.cli.imports.fields import Api, Fields, Found, note_present, note_unread, objects
from fairlead.cli.imports.kinds import Kind, kind_of
from fairlead.cli.imports.model import Document, Imported, shown

GROUP = "scheduling.volcano.sh"
_JOB = "is of one job: jobs are not imported; PodGroups are read as they are where they lie"
API = Api(
    system="Volcano",
    versions={GROUP: ("v1beta1",), "topology.volcano.sh": ("v1alpha1",), "batch.volcano.sh": ("v1alpha1",)},
    kinds=("Queue",),
    others={
        "PodGroup": _JOB,
        "Job": _JOB,
        "HyperNode": "a gang names a node label on its pods, as fairlead.dev/topology: required:LABEL",
    },
)
ROOT = "root"
DEFAULT = "default"
_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")
_MOST_WEIGHT = 1_000_000


def read(documents: Iterable[Document]) -> Imported:
    """Raises RefusedError."""
    draft = Draft()
    found = objects(documents, API, draft)
    names = {each.name for each in found}
    for each in found:
        _queue(each, names, draft)
    _root(draft)
    _default(draft)
    return draft.build()


def _queue(each: Found, names: set[str], draft: Draft) -> None:
    spec, key = each.spec, each.name
    queue = DraftQueue(each.source, each.name)
    draft.queues[key] = queue
    parent = spec.text("parent")
    if parent is not None and parent != ROOT and parent not in names:
        draft.fault(
            each.source, "spec.parent", f"there is no Queue {shown(parent)}: add it to the files, or remove the field"
        )
    elif parent is not None:
        queue.parent = parent
    weight = spec.whole("weight")
    if weight is not None and not 0 <= weight <= _MOST_WEIGHT:
        spec.fault("weight", f"{weight} is not between 0 and {_MOST_WEIGHT}: write one that is")
    queue.quotas = _quotas(spec, key, draft)
    for quota in queue.quotas.values():
        quota.weight = Fraction(1 if weight is None else weight)
    if weight not in (None, 1) and not queue.quotas:
        gpu = Kind()
        draft.flavor(gpu, each.source)
        queue.quotas[gpu] = Quota(weight=Fraction(weight))
    if priority := spec.whole("priority"):
        queue.spec["priority"] = priority
    if spec.choice("dequeueStrategy", ("fifo", "traverse"), "traverse") == "fifo":
        queue.spec["ordering"] = "StrictFIFO"
    if spec.flag("reclaimable") is False:
        queue.spec["disruptionBudget"] = {"evictions": 0}
        text = "is written as a disruptionBudget of 0 evictions, so neither are gangs of this queue evicted for one another"
        draft.note(each.source, "spec.reclaimable", text, lost=False, queue=key)
    _rest(each, spec, draft)


def _rest(each: Found, spec: Fields, draft: Draft) -> None:
    key = each.name
    note_present(
        draft,
        key,
        spec,
        {
            "affinity": "a TenancyPolicy with nodeAffinity binds namespaces to nodes",
            "extendClusters": "a Queue is of one cluster",
            "type": "has no equal",
        },
    )
    note_unread(draft, key, spec)
    annotations = each.metadata.strings("annotations")
    for name in _HIERARCHY:
        if name in annotations:
            text = f"{shown(annotations[name])} is not read: write spec.parent in Volcano's Queue, which is, or weights here"
            draft.note(each.source, f"metadata.annotations[{name}]", text, queue=key)
    state = each.fields.mapping("status").text("state")
    if state in {"Closed", "Closing"}:
        draft.note(each.source, "status.state", f"{state}: the Queue admits gangs once it is applied", queue=key)


def _quotas(spec: Fields, key: str, draft: Draft) -> dict[Kind, Quota]:
    amounts: dict[Kind, dict[str, Fraction]] = {}
    others: dict[str, str] = {}
    guarantee = spec.mapping("guarantee")
    for word, resources in (
        ("deserved", spec.mapping("deserved")),
        ("capability", spec.mapping("capability")),
        ("guarantee", guarantee.mapping("resource")),
    ):
        for name in resources.names():
            kind = kind_of(name)
            amount = resources.amount(name, most=None if kind is None else kind.most)
            if kind is None:
                others.setdefault(name, resources.at(name))
            elif amount is not None:
                amounts.setdefault(kind, {})[word] = amount
                draft.flavor(kind, spec.source)
    note_unread(draft, key, guarantee)
    draft.note_others(spec.source, others, key)
    return {kind: _quota(kind, given, spec) for kind, given in amounts.items()}


def _quota(kind: Kind, given: dict[str, Fraction], spec: Fields) -> Quota:
    guarantee = given.get("guarantee", Fraction(0))
    deserved = given.get("deserved", guarantee)
    if guarantee > deserved:
        text = f"{kind.name}: the guarantee of {float(guarantee):g} is more than the deserved {float(deserved):g}: raise deserved"
        spec.fault("guarantee", text)
    lending = deserved - guarantee if guarantee else None
    return Quota(deserved=deserved, limit=given.get("capability"), lending=lending)


def _root(draft: Draft) -> None:
    """Volcano's root is above all queues; here it is a queue only where it has something to say."""
    root = draft.queues.get(ROOT)
    keep = root is not None and bool(root.quotas)
    if root is not None and root.parent is not None:
        draft.fault(root.source, "spec.parent", f"{shown(root.parent)}: root has no parent: remove the field")
    if not keep and root is not None:
        del draft.queues[ROOT]
        draft.note(root.source, "", "is above every queue and bounds nothing: no Queue is written for it", lost=False)
    for key, queue in draft.queues.items():
        if key != ROOT and queue.parent in (None, ROOT):
            queue.parent = ROOT if keep else None


def _default(draft: Draft) -> None:
    """Jobs that name no queue are of `default`."""
    parents: set[Any] = {queue.parent for queue in draft.queues.values()}
    if DEFAULT in draft.queues and DEFAULT not in parents:
        draft.queues[DEFAULT].spec["namespaceSelector"] = {}
