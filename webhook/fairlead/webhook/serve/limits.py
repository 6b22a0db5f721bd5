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
    head_s: float = 5.0
    handshake_s: float = 5.0
    facts_s: float = 1.5
    idle_s: float = 120.0
    """Of a connection that has carried a review; one that has not is ended after head_s."""
    linger_s: float = 1.0
    """From the last answer until the client closes, too: what it still sends is discarded."""
    connections: int = 1024
    """Accepted sockets, whatever they have sent."""
    buffered_bytes: int = 64 * 1024 * 1024
    """Of all connections: what was received and is not judged yet, and answers that are not sent yet."""
    lookups: int = 32
    """Reviews of connections that have not carried one before, for which the apiserver is asked at the same time."""

    @property
    def answer_s(self) -> float:
        return self.body_s + self.facts_s
