"""In which unit an amount of a resource of pods is charged, and what its use for an hour is called. Pure.

Bytes are charged in GiB, for a price of one byte would have fourteen zeros; cpu in cores; all else by the piece.
Example: 512Mi held for two hours are 1 GiB-hour.
"""

from fractions import Fraction

GPU_HOURS = "GPU-hours"
_BYTES = frozenset({"memory", "ephemeral-storage"})
_GIB = 2**30
_HOURS = {"cpu": "cpu-hours", "pods": "pod-hours"}


def hours_unit(resource: str) -> str:
    """`cpu-hours`, `GiB-hours`, `pod-hours`; of an extended resource `example.com/hca-hours`."""
    return "GiB-hours" if resource in _BYTES else _HOURS.get(resource, f"{resource}-hours")


def in_units(resource: str, amount: Fraction | int) -> Fraction:
    """`amount` as quotas count it (bytes, cores, pieces) in the unit that is charged."""
    return Fraction(amount, _GIB) if resource in _BYTES else Fraction(amount)
