"""How many series each metric has, and how many docs/metrics.md says that it has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from prometheus_client import CollectorRegistry

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
NO_SIZES: Mapping[str, int] = MappingProxyType({})


def stated(program: str, sizes: Mapping[str, int] = NO_SIZES) -> dict[str, int]:
    """By metric, of the table under the program's heading; `sizes`: of the letters, such as Q in `18 Q (F + 2)`. Those in words are left out."""
    table = PAGE.read_text().partition(f"## {program}")[2].partition("\n## ")[0]
    found = {}
    for name, said in re.findall(r"^\| `(fairlead_\w+)` \|[^|]*\| ([\w +()]+) \|", table, re.MULTILINE):
        factors = re.findall(r"\([^)]*\)|\S+", said)
        if all(each in sizes or each.isdigit() for each in re.findall(r"\w+", said)):
            found[name] = math.prod(
                sum(sizes.get(each) or int(each) for each in re.findall(r"\w+", factor)) for factor in factors
            )
    return found


def counted(registry: CollectorRegistry) -> dict[str, int]:
    """By metric, how many series it has now, as they are served: without those of when a counter was created."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): sum(
            1 for sample in family.samples if not sample.name.endswith("_created")
        )
        for family in registry.collect()
    }
