"""What is wrong between Queues that are each valid by themselves, told when a Queue is written.

Whether selectors are in conflict is asked twice. The webhook notes that some namespace *could* match two (`may_overlap`); the
controller says which namespaces *do*, in conditions (controller: `watch/conflicts.py`). A missing parent and a loop of parents
are found where the tree is built.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from fairlead.api.base import LabelSelector
from fairlead.api.flavor import Flavor
from fairlead.api.queue import Queue, QueueFlavor

SAME_MAX = 3  # queues named in one message


def unknown_flavors(queue: Queue, flavors: Collection[str]) -> Iterator[str]:
    """A message per quota of a flavor that is not one of `flavors`, those of the schedule included."""
    for index, entry in enumerate(queue.spec.flavors):
        if entry.flavor not in flavors:
            yield f"spec.flavors[{index}].flavor: Flavor {entry.flavor!r} does not exist; until it does nothing counts"
    for index, scheduled in enumerate(queue.spec.schedule):
        for number, change in enumerate(scheduled.flavors):
            if change.flavor not in flavors:
                yield (
                    f"spec.schedule[{index}].flavors[{number}].flavor: Flavor {change.flavor!r} does not exist; "
                    "until it does nothing counts"
                )


def budget_problem(queue: Queue, measures: Mapping[str, str]) -> str | None:
    """Why its budget bounds nothing. `measures`: of flavors, by name."""
    flavor = queue.spec.budget.flavor if queue.spec.budget is not None else None
    measure = None if flavor is None else measures.get(flavor)
    if flavor is None or measure == "Resource":
        return None
    if measure is None:
        return f"spec.budget.flavor: Flavor {flavor!r} does not exist; until it does what is spent is not known, and nothing is stopped"
    return (
        f"spec.budget.flavor: Flavor {flavor!r} has measure {measure}, whose hours no budget counts: nothing is stopped; write gpuHours, or a "
        "Flavor with measure Resource"
    )


def without_quota(queue: Queue, queues: Iterable[Queue], flavors: Mapping[str, Flavor]) -> Iterator[str]:
    """A note per resource of pods of which this queue, or others beside it, deserve nothing where some queue does.

    `queues`: all of them, this one as it is written included. All pods request cpu: without deserved of it no gang is within what its
    queue deserves.
    """
    queues = list(queues)
    parents = {each.spec.parent for each in queues}
    for name in sorted(name for name, flavor in flavors.items() if flavor.spec.measure == "Resource"):
        deserving = {each.name for each in queues if any(_deserves(entry, name) for entry in each.spec.flavors)}
        without = sorted(each.name for each in queues if each.name not in deserving and each.name not in parents)
        if deserving and without and (queue.name in deserving or queue.name in without):
            yield (
                f"spec.flavors: nothing deserved of Flavor {name!r} in {listed(without)}: what pods there request of it is borrowed, and "
                "can be reclaimed with their devices; list it there, with deserved"
            )


def _deserves(entry: QueueFlavor, flavor: str) -> bool:
    return entry.flavor == flavor and str(entry.deserved) != "0"


def may_overlap(queue: Queue, others: Iterable[Queue]) -> str | None:
    """A note if another queue could select a namespace that this one selects, whether or not such a namespace exists."""
    own = queue.spec.namespace_selector
    if own is None:
        return None
    same = sorted(
        other.name
        for other in others
        if other.name != queue.name
        and other.spec.namespace_selector is not None
        and may_both_match(own, other.spec.namespace_selector)
    )
    if not same:
        return None
    return (
        f"spec.namespaceSelector: {listed(same)} may take the same namespaces; where one matches both, pods that name no "
        f"queue go to {min(queue.name, same[0])}; make the selectors exclude one another"
    )


OPEN = "pods of every namespace that name this queue may use it; write a namespaceSelector to say which may"


def open_to_all(queue: Queue, parents: Collection[str | None]) -> str | None:
    """A note on a queue that takes any pod that names it; None where a selector limits it, or where it has queues below and takes none."""
    if queue.spec.namespace_selector is not None or queue.name in parents:
        return None
    return f"spec.namespaceSelector: is absent: {OPEN}"


def listed(queues: list[str]) -> str:
    """The queues in a message: `Queue a, b, c and 2 more`."""
    more = f" and {len(queues) - SAME_MAX} more" if len(queues) > SAME_MAX else ""
    return f"Queue {', '.join(queues[:SAME_MAX])}{more}"


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
