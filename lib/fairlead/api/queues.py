"""What is wrong between Queues that are each fine for themselves.

Exists so that admission and status say the same of a tree: whose namespaces two queues would both take, which flavors nobody
defined, what is promised twice. Pure; a loop of parents and a missing parent are found by whoever walks the tree.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from fairlead.api.base import LabelSelector
from fairlead.api.queue import Queue

SAME_MAX = 3  # queues named in one message


class Disagreement(NamedTuple):
    """About which queue, as a condition's reason, and in words."""

    queue: str
    reason: str
    message: str


def disagreements(queues: Mapping[str, Queue], flavors: Collection[str]) -> list[Disagreement]:
    """All of them, in order of queues."""
    others = _alike(queues)
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
    """Other queues that take pods of a namespace that this one takes too: a pod that names no queue goes to the first."""
    mine = queue.spec.namespace_selector
    if mine is None:
        return
    same = sorted(
        other.name
        for other in others
        if other.name != queue.name
        and other.spec.namespace_selector is not None
        and may_both_match(mine, other.spec.namespace_selector)
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
    """Whether some labels satisfy both. Exact: keys are independent, and there are endless values."""
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


def _alike(queues: Mapping[str, Queue]) -> dict[str, list[Queue]]:
    """Leaves that could overlap at all: those with another value of the label that most of them use cannot."""
    above = {queue.spec.parent for queue in queues.values()}
    leaves = [
        queue for queue in queues.values() if queue.name not in above and queue.spec.namespace_selector is not None
    ]
    labels = {
        queue.name: queue.spec.namespace_selector.match_labels for queue in leaves if queue.spec.namespace_selector
    }
    common = Counter(key for found in labels.values() for key in found).most_common(1)
    key = common[0][0] if common else ""
    by_value: dict[str | None, list[Queue]] = {}
    for queue in leaves:
        by_value.setdefault(labels[queue.name].get(key), []).append(queue)
    anywhere = by_value.get(None, [])
    alike: dict[str, list[Queue]] = {}
    for queue in leaves:
        value = labels[queue.name].get(key)
        alike[queue.name] = leaves if value is None else [*by_value[value], *anywhere]
    return alike
