"""Since when each draining GPU is seen to be tainted, and whether claims of before have had the time to be prepared.

A claim that was allocated just before the taint was seen would find its device gone. It is prepared when its pod starts,
seconds later: so a GPU that nothing holds is left alone for a moment. Pure but for its memory.
"""

from __future__ import annotations

from collections.abc import Collection


class Settling:
    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._since_s: dict[str, float] = {}
        self._visible_s: dict[str, float] = {}

    def update(self, drained: Collection[str], *, synced_at_s: float | None, now_s: float) -> None:
        """`drained`: UUIDs of all GPUs that drain now; `synced_at_s`: when the stored slices last were as they should be."""
        self._since_s = {uuid: self._since_s.get(uuid, now_s) for uuid in drained}
        self._visible_s = {uuid: at_s for uuid, at_s in self._visible_s.items() if uuid in self._since_s}
        for uuid, since_s in self._since_s.items():
            if uuid not in self._visible_s and synced_at_s is not None and synced_at_s > since_s:
                self._visible_s[uuid] = now_s

    def waits_for(self, uuid: str, *, now_s: float) -> str:
        """What the GPU waits for, or empty."""
        visible_s = self._visible_s.get(uuid)
        if visible_s is None:
            return "until its taint is published"
        if now_s - visible_s < self._settle_s:
            return "for claims that were allocated before its taint was published"
        return ""
