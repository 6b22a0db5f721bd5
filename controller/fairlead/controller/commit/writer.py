"""All writes of the protocol behind one name: what committing, evicting and tidying are given."""

from __future__ import annotations

from fairlead.controller.commit.claim_writes import ClaimWrites
from fairlead.controller.commit.eviction_writes import EvictionWrites


class Writer(ClaimWrites, EvictionWrites):
    """One client guarded by the lease, one bound on how much is under way at once."""
