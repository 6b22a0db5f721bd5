"""All writes of the protocol in one object: one client guarded by the lease, one limit on writes under way."""

from __future__ import annotations

from fairlead.controller.commit.claim_writes import ClaimWrites
from fairlead.controller.commit.eviction_writes import EvictionWrites


class Writer(ClaimWrites, EvictionWrites):
    pass
