"""Which devices another system's resource names mean: the CEL selector and the measure of a Flavor.

A Flavor selects by what a device says of itself, never by its node. Of node labels only those of GPU feature discovery name
something that devices say, too (`fairlead.api.legacy.narrowed`); the others are left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead.api import names
from fairlead.api.flavor import Measure
from fairlead.api.legacy import Narrow, narrowed, narrowing, profile_of

GPU = names.LEGACY_GPU


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A kind of device. `profile`: of MIG devices; None means whole GPUs. `shares`: whole GPUs and parts, counted as shares."""

    profile: str | None = None
    narrow: Narrow = ()
    shares: bool = False

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

    @property
    def name(self) -> str:
        """What the Flavor is called where no single flavor of the input names it."""
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
        return self.profile == other.profile and all(own[key] == theirs[key] for key in own.keys() & theirs.keys())


def kind_of(resource: str, narrow: Narrow = ()) -> Kind | None:
    """None for what is no resource of a device that Fairlead counts."""
    if resource == GPU:
        return Kind(narrow=narrow)
    profile = profile_of(resource)
    return None if profile is None else Kind(profile=profile, narrow=narrow)


def narrow_of(labels: Mapping[str, str]) -> tuple[Narrow, dict[str, str]]:
    """What the labels of nodes say of their devices, and the labels that say nothing of them."""
    found = {key: narrowed(key, "In", value) for key, value in labels.items()}
    pairs = sorted(pair for pair in found.values() if pair is not None)
    return tuple(pairs), {key: value for key, value in labels.items() if found.get(key) is None}
