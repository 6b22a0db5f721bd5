"""What of a running gang is worth a decision when it changes, though nothing else happens on the cluster.

A gang that waits is decided on whenever its request changes (`requests.same_request`), and a change of the tables or of the settings
asks for a decision where it is watched (`watch.handlers`, `watch.caches`). What is left is a running gang: most of its fields change with
pods and claims, whose handlers ask. Every field is in one of the two lists, so that a new one cannot be forgotten. Pure.

Example: `fairlead hold gang sweep --evict` on a quiet cluster changes `hold` of a running gang, and no pod, claim or queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fairlead.engine.types.gangs import RunningGang

WAKES: Final = (
    "queue",
    "priority",
    "size",
    "min_runtime_s",
    "checkpoint_grace_s",
    "ends_by",
    "bounds",
    "movable",
    "hold",
)
"""A change asks for a decision at once."""

RESTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "namespace": "identity: another gang",
        "name": "identity: another gang",
        "uid": "identity: the Gang object was recreated",
        "claims": "come and go with claims, whose handler asks",
        "namespace_labels": "the handler of namespaces asks",
        "created": "does not change",
        "endless": "of its owner's kind: another gang",
        "started": "set by its admission; time alone ends what it protects, which the decision says itself (`Plan.due`)",
        "members": "come, go and leave with pods, whose handler asks",
        "idle": "changes with each sample; the reconciler asks when something follows from it",
        "relocation": "follows its pods",
        "checkpointed": "orders victims only",
        "restart_s": "learned; orders victims only",
    }
)
"""Why a change of the field alone asks for none."""


def wakes(before: RunningGang | None, after: RunningGang | None) -> bool:
    """Whether a decision may have another result since the gang changed from one to the other."""
    if before is None or after is None:
        return False
    return any(getattr(before, name) != getattr(after, name) for name in WAKES)
