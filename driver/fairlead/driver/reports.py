"""What the driver tells its operators of claims, repairs and the apiserver: Events on the Node, metrics, and lines in the log.

With an Event a broken record shows in `kubectl describe node`, not only in a log. Events are written while their recorder runs.
What the apiserver does not keep of slices is said when it is found out, and again when it has changed, and noted on the first slice;
the driver stays ready, since what it publishes can be used.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import Final

from fairlead.api import withheld as api
from fairlead.api.withheld import Group
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.prepare.checkpoint import Unreadable
from fairlead.driver.prepare.leftovers import Leftover, RecoveryResult
from fairlead.driver.publish.keeping import ASK_AGAIN_S, Found
from fairlead.driver.publish.slices import NEEDS, PoolSlices
from fairlead.driver.publish.sync import Annotations, Gone
from fairlead.driver.repair.state import Repair
from fairlead.kube.events import EventRecorder, Regarding

log = logging.getLogger(__name__)

_LEFT: Final = {"claim": "ClaimNotUndone", "orphan": "ClaimFilesNotRemoved", "files": "ClaimFilesNotRemoved"}
_REPAIRED: Final = {"done": "GpuRepaired", "failed": "GpuRepairFailed", "refused": "GpuRepairRefused"}
_AGAIN: Final = f"it is asked again every {ASK_AGAIN_S / 60:.0f} minutes"
_GATE: Final = "turn on the feature gate {gate} in kube-apiserver, kube-controller-manager and kube-scheduler"
_LACKING: Final[Mapping[Group, tuple[str, str, str]]] = {
    "counters": (
        "Warning",
        "CountersNotKept",
        (
            "the apiserver drops sharedCounters and consumesCounters of ResourceSlices: only whole GPUs are published, and no MIG device "
            f"is made on demand; {_GATE}, or install without --dynamic-mig (driver.dynamicMig: false); {_AGAIN}"
        ),
    ),
    "taints": (
        "Normal",
        "TaintsNotKept",
        (
            "the apiserver drops taints of ResourceSlices: a GPU that is broken or drained leaves the slices until it is well again; "
            f"to see it tainted instead, {_GATE}; {_AGAIN}"
        ),
    ),
    "shares": (
        "Warning",
        "SharesNotKept",
        (
            "the apiserver drops allowMultipleAllocations and requestPolicy of ResourceSlices: each claim is given a "
            f"whole device; {_GATE}, or install without --shared-gpus and --shared-mig (driver.sharedGpus, driver.sharedMig: false); {_AGAIN}"
        ),
    ),
}
_KEPT: Final[Mapping[Group, tuple[str, str]]] = {
    "counters": ("CountersKept", "the apiserver keeps counters of ResourceSlices: MIG devices are made on demand"),
    "taints": (
        "TaintsKept",
        "the apiserver keeps taints of ResourceSlices: a GPU that is broken or drained is tainted",
    ),
    "shares": ("SharesKept", "the apiserver keeps shares in ResourceSlices: devices are shared"),
}


class Reports:
    """`wanted` are the groups of fields that this node needs."""

    def __init__(self, events: EventRecorder, metrics: Metrics, node_name: str, wanted: frozenset[Group]) -> None:
        self._events = events
        self._metrics = metrics
        self._node = Regarding.node(node_name)
        self._wanted = wanted
        self._found = Found.nothing()

    # -- claims ------------------------------------------------------------------------------------------------------

    def recovered(self, result: RecoveryResult) -> None:
        self.unreadable(result.unreadable, rebuilt=result.rebuilt)
        for uid in sorted(set(result.rebuilt) - {broken.uid for broken in result.unreadable}):
            log.warning("claim %s had no checkpoint; it was rebuilt from its CDI file", uid)
        for uid, reason in result.not_undone:
            self._warn("ClaimNotUndone", f"claim {uid} was left unfinished and cannot be undone yet: {reason}")
        log.info(
            "recovered",
            extra={
                "kept": len(result.kept),
                "undone": len(result.undone),
                "rebuilt": len(result.rebuilt),
                "earlier_boot": len(result.earlier_boot),
            },
        )

    def unreadable(self, found: Iterable[Unreadable], *, rebuilt: Container[str] = ()) -> None:
        """`rebuilt` are the UIDs of those whose record was rebuilt."""
        for broken in found:
            self._metrics.unreadable()
            then = "it was rebuilt from its CDI file" if broken.uid in rebuilt else "its devices count as free"
            self._warn(
                "CheckpointUnreadable",
                f"record of claim {broken.uid} cannot be read ({broken.reason}); {then}, and the record is kept as "
                f"{broken.path}",
            )

    def not_removed(self, left: Leftover, why: str, again_s: float) -> None:
        if left.kind == "claim":
            text = "cannot be undone"
            then = "its devices stay held until then; a GPU that does not answer needs a reset"
        else:
            text = "what its containers left cannot be removed"
            then = f"if this repeats, remove {left.name} in the directory of MPS by hand; no device is held by it"
        self._warn(_LEFT[left.kind], f"{left.subject}: {text}: {why}; tried again in {again_s:g} s; {then}")

    # -- repairs -----------------------------------------------------------------------------------------------------

    def repair_ended(self, repair: Repair) -> None:
        self._metrics.repaired(repair.phase)
        if (reason := _REPAIRED.get(repair.phase)) is not None:
            kind = "Normal" if repair.phase == "done" else "Warning"
            self._events.record(self._node, reason, f"{repair.device}: {repair.message}", type=kind)

    def repairs(self, repairs: Iterable[Repair]) -> None:
        """All of them as they are now."""
        under_way = failed = 0
        for repair in repairs:
            under_way += len(repair.members) if repair.under_way else 0
            failed += len(repair.members) if repair.phase == "failed" else 0
        self._metrics.repairing(under_way, failed)

    # -- what the apiserver keeps ------------------------------------------------------------------------------------

    def kept(self, found: Found) -> None:
        before, self._found = self._found, found
        self._metrics.kept({group: found.kept.has(group) for group in self._wanted})
        if found.problem:
            self._say(
                "Warning",
                "SliceFieldsUnknown",
                f"the apiserver refuses a ResourceSlice that is created as a dry run, so it is not known what it keeps: {found.problem}; "
                f"allow the driver's account to create ResourceSlices of its node as a dry run; {_AGAIN}",
            )
        for group in found.lacking:
            if group not in before.lacking and not found.problem:
                kind, reason, text = _LACKING[group]
                self._say(kind, reason, text.format(gate=NEEDS[group].gate))
        for group in before.lacking:
            if group not in found.lacking:
                self._say("Normal", *_KEPT[group])

    def notes(self, built: PoolSlices) -> Annotations:
        """For the first slice: what is withheld, and which fields are dropped."""
        lacking = self._found.lacking
        return {
            api.WITHHELD: api.encode(built.notes) if built.notes else Gone(),
            api.DROPPED: ",".join(lacking) if lacking else Gone(),
        }

    def _warn(self, reason: str, text: str) -> None:
        """Someone has to act."""
        log.error("%s", text)
        self._events.record(self._node, reason, text, type="Warning")

    def _say(self, kind: str, reason: str, text: str) -> None:
        log.log(logging.WARNING if kind == "Warning" else logging.INFO, "%s", text)
        self._events.record(self._node, reason, text, type=kind)
