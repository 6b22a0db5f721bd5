"""What Kueue's quotas come to as those of a tree of Queues: of roots, of cohorts, and of devices that a ClusterQueue does not list."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fairlead.api.queue import FLAVORS_MAX
from fairlead.cli.imports.devices import Kind
from fairlead.cli.imports.draft import NOTHING, Draft, DraftQueue, Quota
from fairlead.cli.imports.model import Source, plain


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
    if not draft.flavors:
        text = "no ClusterQueue lists devices, so none may use any, where a Queue without flavors may use all: write a Flavor, and limit: 0 of it"
    elif len(queue.quotas) + len(missing) <= FLAVORS_MAX:
        queue.quotas |= {kind: Quota(limit=Fraction(0)) for kind in missing}
    else:
        text = f"it may use {len(missing)} kinds of devices that it does not list, as there are too many to forbid each: name the flavors in a TenancyPolicy"
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
