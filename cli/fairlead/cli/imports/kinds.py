"""What another system's amounts are of: kinds of devices, or what pods request of a resource. Each becomes one Flavor.

A Flavor selects by what a device says of itself, never by its node. Of node labels only those of GPU feature discovery name
something that devices say, too (`fairlead.api.legacy.narrowed`); the others are left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from fairlead.api import names
from fairlead.api.flavor import Measure, counts
from fairlead.api.legacy import Narrow, is_legacy, narrowed, narrowing, profile_of
from fairlead.engine.types.values import BYTES_FROM
from fairlead.engine.types.values import text as quantity_text

DEVICES_MAX = 10**9
GPU = names.LEGACY_GPU


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A kind of device. `profile`: of MIG devices; None means whole GPUs. `shares`: whole GPUs and parts, counted as shares.

    Or, with `resource`, what pods request of that on nodes with the labels `nodes`; () means on all.
    """

    profile: str | None = None
    narrow: Narrow = ()
    shares: bool = False
    resource: str = ""
    nodes: tuple[tuple[str, str], ...] = ()

    def written(self, value: Fraction) -> int | str:
        """An amount of it as a quantity of Kubernetes."""
        if not self.resource:
            return amount_text(value)
        if self.resource == "cpu" and value.denominator != 1:
            return f"{ceil(value * 1000)}m"
        whole = ceil(value)
        return whole if whole < BYTES_FROM or whole % 1024 else quantity_text(whole)

    @property
    def most(self) -> int:
        """More of it is a mistake."""
        return 2**63 - 1 if self.resource else DEVICES_MAX

    @property
    def measure(self) -> Measure:
        return "Share" if self.shares else "Devices"

    def selector(self, others: Iterable[Kind] = ()) -> str:
        """CEL. Devices that are of a more particular kind of `others` are left to that one."""
        attributes = f"device.attributes['{names.DRIVER}']"
        texts = [f"device.driver == '{names.DRIVER}'"]
        if self.profile is not None:
            texts += [f"{attributes}.type == 'mig'", f"{attributes}.profile == '{self.profile}'"]
        elif not self.shares:
            texts.append(f"{attributes}.type == 'gpu'")
        texts += narrowing(self.narrow, names.DRIVER)
        for other in self.more_particular(others):
            texts.append(f"!({' && '.join(narrowing(other.narrow, names.DRIVER))})")
        return " && ".join(texts)

    def counts_with(self, other: Kind) -> bool:
        """Whether both may count the same pod."""
        own = dict(self.nodes)
        apart = any(own.get(key, value) != value for key, value in other.nodes)
        return self != other and bool(self.resource) and self.resource == other.resource and not apart

    @property
    def name(self) -> str:
        """What the Flavor is called where no single flavor of the input names it."""
        if self.resource:
            return "-".join([*(value for _, value in self.nodes), self.resource])
        parts = [value for _, value in self.narrow] or ["gpu"]
        return "-".join([*parts, *([] if self.profile is None else [f"mig-{self.profile}"])])

    def more_particular(self, others: Iterable[Kind]) -> list[Kind]:
        """Those that say more of a device and may take one of this kind's. Of two that may take the same, one is more particular."""
        return sorted(other for other in others if self._may_share(other) and self.rank < other.rank)

    @property
    def rank(self) -> tuple[bool, int, Narrow]:
        return ("product" in dict(self.narrow), len(self.narrow), self.narrow)

    def _may_share(self, other: Kind) -> bool:
        own, theirs = dict(self.narrow), dict(other.narrow)
        if self.resource or other.resource:
            return False
        return self.profile == other.profile and all(own[key] == theirs[key] for key in own.keys() & theirs.keys())


def amount_text(value: Fraction) -> int | str:
    """A whole number, or decimal text such as `'0.5'`."""
    if value.denominator == 1:
        return int(value)
    return f"{float(value):.9f}".rstrip("0") if value < 10**6 else f"{value.numerator * 10**9 // value.denominator}n"


def kind_of(resource: str, narrow: Narrow = (), nodes: tuple[tuple[str, str], ...] = ()) -> Kind | None:
    """None for what no Flavor counts. `narrow` says which devices, `nodes` on which nodes pods."""
    if resource == GPU:
        return Kind(narrow=narrow)
    profile = profile_of(resource)
    if profile is not None:
        return Kind(profile=profile, narrow=narrow)
    return Kind(resource=resource, nodes=nodes) if counts(resource) and not is_legacy(resource) else None


def narrow_of(labels: Mapping[str, str]) -> tuple[Narrow, dict[str, str]]:
    """What the labels of nodes say of their devices, and the labels that say nothing of them."""
    found = {key: narrowed(key, "In", value) for key, value in labels.items()}
    pairs = sorted(pair for pair in found.values() if pair is not None)
    return tuple(pairs), {key: value for key, value in labels.items() if found.get(key) is None}
