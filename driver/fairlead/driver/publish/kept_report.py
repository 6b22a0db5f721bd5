"""Reports what the apiserver does not keep of what this node needs: Events on the Node, metrics, and a note on the first slice.

Each is said when it is found out, and again when it has changed; the driver stays ready, since what it publishes can be used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from fairlead.api import withheld as api
from fairlead.api.withheld import Group
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.publish.keeping import ASK_AGAIN_S, Found
from fairlead.driver.publish.kept import NEEDS
from fairlead.driver.publish.slices import PoolSlices
from fairlead.driver.publish.sync import Annotations, Gone
from fairlead.kube.events import EventRecorder, Regarding

log = logging.getLogger(__name__)

_AGAIN = f"it is asked again every {ASK_AGAIN_S / 60:.0f} minutes"
_GATE = "turn on the feature gate {gate} in kube-apiserver, kube-controller-manager and kube-scheduler"
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


class KeptReporter:
    """Events are written while `events` runs."""

    def __init__(self, events: EventRecorder, metrics: Metrics, node_name: str, wanted: frozenset[Group]) -> None:
        self._events = events
        self._metrics = metrics
        self._node = Regarding.node(node_name)
        self._wanted = wanted
        self._before = Found.nothing()

    def changed(self, found: Found) -> None:
        before, self._before = self._before, found
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
        lacking = self._before.lacking
        return {
            api.WITHHELD: api.encode(built.notes) if built.notes else Gone(),
            api.DROPPED: ",".join(lacking) if lacking else Gone(),
        }

    def _say(self, kind: str, reason: str, text: str) -> None:
        log.log(logging.WARNING if kind == "Warning" else logging.INFO, "%s", text)
        self._events.record(self._node, reason, text, type=kind)
