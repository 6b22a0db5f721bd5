"""What the parts of a controller's term share, for tests of one part: what is not given, that part does without."""

from __future__ import annotations

from typing import Any, cast

from fairlead.controller.book.book import Book
from fairlead.controller.commit.part import Shared, Tasks
from fairlead.controller.options import ControllerOptions
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.telemetry import Telemetry
from fairlead.kube.timing import Time


def shared(*, time: Time | None = None, options: ControllerOptions | None = None, **given: Any) -> Shared:
    time, metrics = time or Time(), Metrics()
    parts: dict[str, Any] = {
        "client": None,
        "caches": None,
        "book": Book(),
        "writer": None,
        "tasks": Tasks(metrics, time.clock),
        "telemetry": Telemetry(cast(Any, None), metrics, cast(Any, None)),
    }
    return Shared(**(parts | given), time=time, options=options or ControllerOptions())
