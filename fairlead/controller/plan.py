"""The one decision: which waiting gangs get which devices on which nodes now, and why the others wait.

Exists as the core's only door for the controller's loop: snapshot, decide, commit, report. Does no I/O, reads no clock,
keeps nothing between calls.
"""

from __future__ import annotations

from fairlead.controller.model import Plan, Snapshot


def decide(snapshot: Snapshot, now: float) -> Plan:
    """Admit what fits, in the order of the queues; explain the rest.

    `now` is unix seconds, used for ages only. Every gang of `snapshot.gangs` is in exactly one of `Plan.admissions` and
    `Plan.waiting`. The tables of the snapshot are left as they were: the rim notes what it wrote (`inventory.set_claim`,
    `nodes.set_pod`) before it decides again, else the same devices are given twice.
    Deciding again on the outcome admits nothing new. Raises nothing for bad user input: that is a Waiting with
    `Code.INVALID`.
    """
    raise NotImplementedError
