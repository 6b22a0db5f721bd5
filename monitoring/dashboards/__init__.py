"""The eight dashboards, in the order in which one goes from the whole to a part."""

from __future__ import annotations

from typing import Final

from monitoring.dashboards import cluster, cost, fairlead, first_look, gang, gpus, queues, waiting
from monitoring.grafana import Dashboard

ALL: Final[tuple[Dashboard, ...]] = (
    first_look.DASHBOARD,
    cluster.DASHBOARD,
    queues.DASHBOARD,
    waiting.DASHBOARD,
    gang.DASHBOARD,
    gpus.DASHBOARD,
    fairlead.DASHBOARD,
    cost.DASHBOARD,
)
