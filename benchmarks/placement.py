"""How well placement does beside what is published or possible. Its parts are modules of their own; here they are joined.

`placement_moves`: gangs of eight GPUs on a fragmented cluster, with moves and without.
"""

from __future__ import annotations

from typing import Any

from benchmarks.placement_moves import moves_figures


def figures() -> list[dict[str, Any]]:
    return moves_figures()
