"""GPUs that are being drained: they get no new claims, and wait until those that hold them have ended. Thread-safe.

A reason for draining (`mig-config`, `repair`) owns its own set of GPUs, so that two may drain one GPU and neither ends the
other's. In three steps: tainted, so that nothing new is allocated there, while claims that were allocated before are still
prepared; free, when no claim's record names the GPU any more (`prepare.records.holders`); closed, when claims are refused while the GPU is changed.
Example: GPU 0 is to be cut again, and claim ml/train holds it. It is tainted `gpu.fairlead.dev/mig-config:NoSchedule`; once
ml/train is unprepared it is closed, cut, published as it is then, and opened again without the taint.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import Literal

from fairlead.api import names
from fairlead.kube.resource import DeviceTaint

Reason = Literal["mig-config", "repair"]
"""The name of the taint after `gpu.fairlead.dev/`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`value` is the taint's; `closed` says why no claim can be prepared on the GPU now, for the user, or is empty."""

    value: str = ""
    closed: str = ""


class Drains:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._by_reason: dict[Reason, dict[str, Drain]] = {}

    def replace(self, reason: Reason, gpus: Mapping[str, Drain]) -> None:
        """All GPUs (by UUID) that are drained for this reason from now on; the others are not any more."""
        with self._mutex:
            self._by_reason[reason] = dict(gpus)

    def of(self, reason: Reason) -> dict[str, Drain]:
        """The GPUs that are drained for this reason."""
        with self._mutex:
            return dict(self._by_reason.get(reason, {}))

    def taints(self) -> dict[str, tuple[DeviceTaint, ...]]:
        """By the GPU's UUID: for the GPU and its MIG devices."""
        found: dict[str, tuple[DeviceTaint, ...]] = {}
        with self._mutex:
            for reason, gpus in sorted(self._by_reason.items()):
                for uuid, drain in gpus.items():
                    taint = DeviceTaint(key=f"{names.DRIVER}/{reason}", value=drain.value, effect="NoSchedule")
                    found[uuid] = (*found.get(uuid, ()), taint)
        return found

    def closed(self, uuid: str) -> str | None:
        """Why no claim can be prepared on the GPU now; None when claims can be."""
        with self._mutex:
            drains = (gpus[uuid] for _, gpus in sorted(self._by_reason.items()) if uuid in gpus)
            return next((drain.closed for drain in drains if drain.closed), None)
