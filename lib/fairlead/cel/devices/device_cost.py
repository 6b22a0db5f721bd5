"""The worst-case cost of a device selector, from how large the API lets the parts of a device grow.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go (sizeEstimator).
"""

from __future__ import annotations

from typing import Final

from fairlead.cel.check.checker import Checked
from fairlead.cel.cost.cost import estimate
from fairlead.cel.cost.ranges import ZERO, Path, Range
from fairlead.cel.device import DEVICE_FIELDS

_ATTRIBUTES_MAX: Final = Range(0, 32)
_DOMAIN_MAX: Final = Range(0, 63)
_NAME_MAX: Final = Range(0, 32)
_VALUE_MAX: Final = Range(0, 64)


def device_sizes(path: Path) -> Range | None:
    """The size of what the path leads to from `device`."""
    if path[0] != "device":
        return None
    if len(path) == 1:
        return ZERO
    field, rest = path[1], path[2:]
    if field not in DEVICE_FIELDS:
        return None
    if field == "driver":
        return _DOMAIN_MAX if not rest else None
    if field not in {"attributes", "capacity"}:
        return None
    if not rest:
        return _ATTRIBUTES_MAX
    if rest[0] != "@values":
        return _DOMAIN_MAX if rest == ("@keys",) else None
    if len(rest) == 1:
        return _ATTRIBUTES_MAX
    if rest[1] == "@keys":
        return _NAME_MAX if len(rest) == 2 else None
    return _VALUE_MAX if len(rest) == 2 and field == "attributes" else None


def estimate_selector(checked: Checked) -> int:
    """The worst case of a device selector."""
    return estimate(checked, device_sizes).max
