"""What the ledger holds of pods: how much of a Flavor with measure Resource each pod of a gang requested, from when to when.

Beside device time, which it is no part of: nothing has to add up to a whole. A pod that two flavors count has two intervals. Frozen values;
times are unix microseconds, amounts exact and in the unit that is charged (`fairlead.api.resource_units`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple


class Holder(NamedTuple):
    """Whose pod it is. "": of no queue, not known."""

    namespace: str
    gang: str
    queue: str = ""
    user: str = ""
    labels: tuple[tuple[str, str], ...] = ()  # as of `entries.Allocation`


class PodAmount(NamedTuple):
    """`amount` of a resource, by the flavor that counts it. `capacity_type`: of the pod's node, for prices."""

    flavor: str
    resource: str
    amount: Fraction
    capacity_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInterval:
    """`end_us` None: it goes on. No two of a pod, an amount and a start."""

    pod_uid: str
    holder: Holder
    amount: PodAmount
    start_us: int
    end_us: int | None = None


class PodUse(NamedTuple):
    """What a pod counts for. `counted_us`: from when on the flavor counts it as it does now."""

    amount: PodAmount
    counted_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """A pod of a gang that is bound, and everything that counts it; no use: nothing does. `since_us`: when it was bound."""

    pod_uid: str
    holder: Holder
    since_us: int
    uses: tuple[PodUse, ...] = ()


class PodEnded(NamedTuple):
    """A pod that requests nothing any more: its containers have ended, or it is gone."""

    pod_uid: str
    at_us: int


POD_GROUPS: Final = frozenset({"queue", "namespace", "user", "gang", "flavor", "day"})
"""What sums of pods tell apart, and labels; of the other groups of `entries.GROUPS`, which are of devices, the key is ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSum:
    """Amount × time of pods that are alike, cut to a window, in units × µs. `keys` in the order that was asked for."""

    keys: tuple[str, ...]
    flavor: str
    resource: str
    capacity_type: str | None
    weighed: Fraction
