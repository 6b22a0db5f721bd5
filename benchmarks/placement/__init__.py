"""How well placement does beside what is published or possible. Its parts are modules of their own; here they are joined.

`lists`: published pod lists, beside best fit and FGD on the same arrivals.
`mig`: MIG profiles and whole GPUs, beside best fit and first fit.
`gangs`: on how many nodes gangs of several pods are, and how long jobs wait.
`moves`: gangs of eight GPUs on a fragmented cluster, with moves and without.
"""

from __future__ import annotations

from typing import Any

from benchmarks.placement.gangs import gangs_figures
from benchmarks.placement.lists import list_figures
from benchmarks.placement.mig import mig_figures
from benchmarks.placement.moves import moves_figures


def figures() -> list[dict[str, Any]]:
    return [*list_figures(), *mig_figures(), *gangs_figures(), *moves_figures()]
