"""Which colour a queue has: seven that colour-blind readers tell apart (Okabe and Ito), then one for all others. Pure.

Colours go to the queues that hold most, in the order of their names, so that a queue keeps its colour while the same ones hold most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fairlead.ui.model.cluster import ClusterView

COLOURS = 7
NONE = "qn"  # no queue, or none that is known
OTHER = "qo"


def palette(view: ClusterView) -> Mapping[str, str]:
    """A CSS class for each queue that holds something."""
    held: Counter[str] = Counter()
    for node in view.nodes:
        for gpu in node.gpus:
            for hold in (*gpu.holds, *(hold for part in gpu.parts for hold in part.holds)):
                held[hold.queue] += 1
    return of_counts(held)


def of_counts(held: Mapping[str, int]) -> Mapping[str, str]:
    """The same, from how many devices each queue holds."""
    most = sorted((name for name in held if name), key=lambda name: (-held[name], name))[:COLOURS]
    found = {name: f"q{number}" for number, name in enumerate(sorted(most))}
    return {name: NONE if not name else found.get(name, OTHER) for name in held}
