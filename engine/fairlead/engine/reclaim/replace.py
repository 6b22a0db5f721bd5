"""Gangs whose hardware broke: their pods must go because a device of theirs has a NoExecute taint.

Broken devices are released gang by gang: an elastic gang loses the members that hold them, any other goes whole, to be placed
on sound devices together; also where the cluster's own taint eviction has deleted the pods that hold them already. Neither shares nor min-runtime protect them: a broken device is of no use to its holder.
A toleration in the claim's result counts, also one with `tolerationSeconds` from the taint's `timeAdded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.candidates import taints
from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead.engine.inventory.allocated import AllocatedDevice
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.types.gangs import RunningGang
    from fairlead.kube.resource import DeviceTaint


class BrokenDevices:
    """The taints of one moment. `due` is when the next toleration ends."""

    def __init__(self, inventory: Inventory, now: float) -> None:
        self._inventory = inventory
        self._now = now
        self.due: float | None = None

    def evictions(self, running: Iterable[RunningGang]) -> Iterator[Eviction]:
        """One for each gang that must give up devices; queues are filled in by the plan."""
        for gang in running:
            found = self._of(gang)
            if found is not None:
                yield found

    def _of(self, gang: RunningGang) -> Eviction | None:
        faults = {uid: fault for uid in gang.claims if (fault := self.fault(uid)) is not None}
        staying = [member for member in gang.members if not member.leaving]
        hurt = [member for member in gang.members if not member.done and any(uid in faults for uid in member.claims)]
        hurt_staying = [member for member in hurt if not member.leaving]
        whole = len(staying) - len(hurt_staying) < gang.size
        going = staying if whole and hurt else hurt_staying
        if not going:
            return None
        pods = len(staying) + len(hurt) - len(hurt_staying)
        first = min(faults.values())
        reason = Reason(
            code=Code.BROKEN,
            message=f"{first}; {len(hurt)} of its {pods} pods hold{'s' if len(hurt) == 1 else ''} such devices, it needs {gang.size}: "
            + ("all of them go" if whole else "only those go"),
            advice="recreated, its pods wait with its age and are given other devices",
        )
        queue, grace_s = gang.queue or "", gang.checkpoint_grace_s or 0.0
        return Eviction.of(gang, going, "Replace", reason, queue=queue, whole=whole, checkpoint_grace_s=grace_s)

    def fault(self, uid: str) -> str | None:
        """Which taint of a device evicts those who hold the claim; None where none does."""
        claim = self._inventory.claim(uid)
        for held in claim.devices if claim is not None else ():
            device = None if held.admin else self._inventory.tainted_with(held.ref)
            if device is None:
                continue
            for taint in taints(device, self._inventory.rules):
                if taint.effect == "NoExecute" and self._evicts(taint, held):
                    value = f"={taint.value}" if taint.value else ""
                    return f"device {device.ref} has the taint {taint.key}{value}:NoExecute"
        return None

    def _evicts(self, taint: DeviceTaint, held: AllocatedDevice) -> bool:
        """Not tolerated, or no longer."""
        ends: list[float] = []
        for toleration in held.tolerations:
            if not tolerated(taint.key, taint.value, taint.effect, (toleration,)):
                continue
            if toleration.toleration_seconds is None or taint.time_added is None:
                return False
            ends.append(timestamps.parse(taint.time_added) + toleration.toleration_seconds)
        if not ends or min(ends) <= self._now:
            return True
        self.due = min(ends) if self.due is None else min(self.due, *ends)
        return False
