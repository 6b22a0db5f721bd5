"""Every limit of the server."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES_MAX = 16 * 1024
"""Request line and header fields, without the empty line after them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """An update's review holds two objects, each of at most 3 MiB (the apiserver's limit)."""

    body_bytes: int = 8 * 1024 * 1024
    body_s: float = 5.0
    head_s: float = 10.0
    handshake_s: float = 5.0
    facts_s: float = 1.5
    idle_s: float = 120.0
    connections: int = 1024

    @property
    def answer_s(self) -> float:
        return self.body_s + self.facts_s
