"""Where is said what happens to gangs: events for their owners, metrics for operators, traces for both."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.traces import GangTraces


@dataclass(frozen=True, slots=True)
class Telemetry:
    events: Events
    metrics: Metrics
    traces: GangTraces
