"""The account of pods: intervals made of what the leader sees of them. Pure: all times are given.

A pod that is seen first counts from when it was bound, or from when a flavor counts it if that is later, but never from before the ledger
began: so what a restart takes is known, and no gang is charged by a flavor for the time before that was there. Of a known pod a change counts
from when it is seen. One that went while no leader looked ends where the ledger was last known; one that ended meanwhile, where its containers did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fairlead.history.ledger.pod_entries import PodAmount, PodEnded, PodInterval, PodSeen, PodUse


class PodAccount:
    """`resume` first, with all pods that are there; then `observe` what changes, and `take` what is to be written."""

    def __init__(self, kept: Iterable[PodInterval]) -> None:
        self._open: dict[str, dict[str, PodInterval]] = {}  # by pod and flavor
        self._changed: dict[tuple[str, PodAmount, int], PodInterval] = {}
        self._written: set[tuple[str, PodAmount, int]] = set()  # open ones that a store has
        self._first_us = 0  # nothing counts from before
        self._last_us = 0
        for each in kept:
            self._open.setdefault(each.pod_uid, {})[each.amount.flavor] = each
            self._written.add(_key(each))

    def resume(self, before_us: int, seen: Iterable[PodSeen], ended: Iterable[PodEnded], now_us: int) -> None:
        """`before_us`: until when the ledger was known, which is now where it is new."""
        seen, ended = tuple(seen), tuple(ended)
        self._first_us = self._last_us = before_us
        there = {each.pod_uid for each in seen} | {each.pod_uid for each in ended}
        for uid in [uid for uid in self._open if uid not in there]:
            self._end_pod(uid, before_us)
        self.observe(seen, ended, now_us)

    def observe(self, seen: Iterable[PodSeen], ended: Iterable[PodEnded], now_us: int) -> None:
        for pod in seen:
            self._see(pod, now_us)
        for end in ended:
            self._end_pod(end.pod_uid, min(end.at_us, now_us))
        self._last_us = max(self._last_us, now_us)

    def take(self) -> tuple[PodInterval, ...]:
        """What changed since the last call."""
        changed, self._changed = self._changed, {}
        self._written |= {key for key, each in changed.items() if each.end_us is None}
        return tuple(changed.values())

    def _see(self, pod: PodSeen, now_us: int) -> None:
        known = self._open.get(pod.pod_uid)
        own = self._open.setdefault(pod.pod_uid, {})
        wanted = {use.amount.flavor: use for use in pod.uses}
        for flavor in [flavor for flavor in own if flavor not in wanted]:
            self._end(own.pop(flavor), now_us)
        for flavor, use in wanted.items():
            before = own.get(flavor)
            if before is None:
                start_us = self._start(pod, use, new=known is None)
            elif (before.amount, before.holder) == (use.amount, pod.holder):
                continue
            else:
                self._end(before, now_us)
                start_us = now_us
            made = PodInterval(
                pod_uid=pod.pod_uid, holder=pod.holder, amount=use.amount, start_us=min(start_us, now_us)
            )
            own[flavor] = self._changed[_key(made)] = made

    def _start(self, pod: PodSeen, use: PodUse, *, new: bool) -> int:
        """`new` False: something was known of the pod at the last look, and this was no part of it."""
        return max(use.counted_us, pod.since_us, self._first_us if new else self._last_us)

    def _end_pod(self, uid: str, at_us: int) -> None:
        for each in self._open.pop(uid, {}).values():
            self._end(each, at_us)

    def _end(self, each: PodInterval, at_us: int) -> None:
        key, at_us = _key(each), max(at_us, each.start_us)
        if at_us == each.start_us and key not in self._written:
            del self._changed[key]  # it never was
            return
        self._written.discard(key)
        self._changed[key] = dataclasses.replace(each, end_us=at_us)


def _key(each: PodInterval) -> tuple[str, PodAmount, int]:
    return each.pod_uid, each.amount, each.start_us
