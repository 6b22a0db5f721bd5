"""All writes of the protocol behind one name: what committing and tidying are given."""

from __future__ import annotations

from fairlead.controller.claim_writes import ClaimWrites
from fairlead.controller.pod_writes import PodWrites


class Writer(ClaimWrites, PodWrites):
    """One client guarded by the lease, one bound on how much is under way at once."""
