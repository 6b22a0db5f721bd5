"""Conflicts between Queues that are each valid by themselves: overlapping selectors and undefined flavors.

The webhook warns of them and the controller puts them in conditions, with the same reasons and messages. A missing parent
and a loop of parents are not found here but where the tree is built.
Example: of two leaves that both select `env In (prod)`, pods that name no queue use the one whose name sorts first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from fairlead.api.base import LabelSelector
from fairlead.api.queue import Queue

SAME_MAX = 3  # queues named in one message


class Disagreement(NamedTuple):
    """The queue, a condition's reason, and its message."""

    queue: str
    reason: str
    message: str


def disagreements(queues: Mapping[str, Queue], flavors: Collection[str]) -> list[Disagreement]:
    """All conflicts, sorted by queue."""
    others = _may_overlap(queues)
    return [
        found
        for name in sorted(queues)
        for found in (*unknown_flavors(queues[name], flavors), *overlaps(queues[name], others.get(name, ())))
    ]


def unknown_flavors(queue: Queue, flavors: Collection[str]) -> Iterator[Disagreement]:
    for index, entry in enumerate(queue.spec.flavors):
        if entry.flavor not in flavors:
            yield Disagreement(
                queue.name,
                "UnknownFlavor",
                f"spec.flavors[{index}].flavor: Flavor {entry.flavor!r} does not exist; until it does nothing counts",
            )


def overlaps(queue: Queue, others: Iterable[Queue]) -> Iterator[Disagreement]:
    """A conflict if another queue may select a namespace that this one selects."""
    own = queue.spec.namespace_selector
    if own is None:
        return
    same = sorted(
        other.name
        for other in others
        if other.name != queue.name
        and other.spec.namespace_selector is not None
        and may_both_match(own, other.spec.namespace_selector)
    )
    if same:
        more = f" and {len(same) - SAME_MAX} more" if len(same) > SAME_MAX else ""
        first = min(queue.name, same[0])
        yield Disagreement(
            queue.name,
            "SelectorsOverlap",
            f"spec.namespaceSelector: Queue {', '.join(same[:SAME_MAX])}{more} may take the same namespaces; pods that name "
            f"no queue go to {first}; make the selectors exclude one another",
        )


def may_both_match(one: LabelSelector, other: LabelSelector) -> bool:
    """Whether some labels match both. Exact, since keys are independent and a label has unlimited values to take."""
    allowed: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    present: set[str] = set()
    absent: set[str] = set()
    for selector in (one, other):
        for key, value in selector.match_labels.items():
            allowed[key] = allowed.get(key, {value}) & {value}
        for rule in selector.match_expressions:
            values = set(rule.values)
            match rule.operator:
                case "In":
                    allowed[rule.key] = allowed.get(rule.key, values) & values
                case "NotIn":
                    refused.setdefault(rule.key, set()).update(values)
                case "Exists":
                    present.add(rule.key)
                case "DoesNotExist":
                    absent.add(rule.key)
    return all(values - refused.get(key, set()) for key, values in allowed.items()) and not absent & (
        present | allowed.keys()
    )


def _may_overlap(queues: Mapping[str, Queue]) -> dict[str, list[Queue]]:
    """For each leaf, the leaves that its selector may overlap with; this keeps the comparison of pairs small.

    Leaves are grouped by their value of the label that most selectors use: those with different values cannot overlap.
    """
    parents = {queue.spec.parent for queue in queues.values()}
    leaves = [
        queue for queue in queues.values() if queue.name not in parents and queue.spec.namespace_selector is not None
    ]
    labels = {
        queue.name: queue.spec.namespace_selector.match_labels for queue in leaves if queue.spec.namespace_selector
    }
    common = Counter(key for found in labels.values() for key in found).most_common(1)
    key = common[0][0] if common else ""
    by_value: dict[str | None, list[Queue]] = {}
    for queue in leaves:
        by_value.setdefault(labels[queue.name].get(key), []).append(queue)
    without = by_value.get(None, [])
    found: dict[str, list[Queue]] = {}
    for queue in leaves:
        value = labels[queue.name].get(key)
        found[queue.name] = leaves if value is None else [*by_value[value], *without]
    return found
