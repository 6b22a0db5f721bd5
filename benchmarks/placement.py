"""How well placement does beside what is published or possible. Its parts are modules of their own; here they are joined.

`consolidation`: gangs of eight GPUs on a fragmented cluster, with moves and without.
"""

from __future__ import annotations

from typing import Any

from benchmarks import consolidation


def figures() -> list[dict[str, Any]]:
    return consolidation.rows()
