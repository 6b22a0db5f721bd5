"""Namespaces that several queues select: the conflicts between queues that depend on what exists in the cluster.

Example: `a` selects {team: ml}, `b` selects {env: prod}. They are in conflict once a namespace has both labels; pods there that
name no queue go to `a`, whose name sorts first. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from fairlead.api.queues import listed
from fairlead.engine.types.settings import Problem
from fairlead.kube.labels import Selector


def selected_twice(
    selectors: Mapping[str, Selector], namespaces: Iterable[tuple[str, Mapping[str, str]]]
) -> Iterator[Problem]:
    """Per queue that selects a namespace which another selects too, one conflict that names the first such namespace.

    `selectors` are those of leaf queues, by queue; `namespaces` are (name, labels). Sorted by queue.
    Cost: a selector with an equality is tried only on namespaces that have one of its values.
    """
    by_label: dict[tuple[str, str], list[str]] = defaultdict(list)
    others: list[str] = []
    for name, selector in selectors.items():
        equality = next((each for each in selector.requirements if each.operator == "In"), None)
        if equality is None:
            others.append(name)
        else:
            for value in equality.values:
                by_label[equality.key, value].append(name)
    rivals: dict[str, set[str]] = defaultdict(set)
    first: dict[str, tuple[str, str]] = {}  # a namespace, and the queue that takes it
    for namespace, labels in sorted(namespaces):
        candidates = {*others, *(name for label in labels.items() for name in by_label.get(label, ()))}
        matching = sorted(name for name in candidates if selectors[name].matches(labels))
        if len(matching) > 1:
            for name in matching:
                rivals[name].update(matching)
                first.setdefault(name, (namespace, matching[0]))
    for name in sorted(rivals):
        same = sorted(rivals[name] - {name})
        namespace, taker = first[name]
        verb = "selects" if len(same) == 1 else "select"
        yield Problem(
            kind="Queue",
            name=name,
            reason="SelectorsOverlap",
            message=f"spec.namespaceSelector: {listed(same)} {verb} namespace {namespace} too; pods there "
            f"that name no queue go to {taker}; make the selectors exclude one another",
        )
