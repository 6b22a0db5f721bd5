"""The queries of the dashboards' panels, as Grafana would send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

Key = tuple[str, str, str]  # uid of the dashboard, title of the panel, legend of the query
ALL: Final = ("$queue", "$flavor", "$namespace", "$gang", "$node")
VARIABLES: Final = {
    "$__rate_interval": "15s",
    "$__interval": "5s",
    "$__range": "5m",
    "$price": "2.50",
    **dict.fromkeys(ALL, ".*"),
}


def expressions(folder: Path) -> Iterator[tuple[Key, str]]:
    """Of every panel of every dashboard, with values for the variables: a short time, and all of everything."""
    for path in sorted(folder.glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        for panel in model["panels"]:
            for target in panel.get("targets", ()):
                yield (model["uid"], panel["title"], target["legendFormat"]), substituted(target["expr"])


def substituted(expression: str) -> str:
    for name in sorted(VARIABLES, key=len, reverse=True):
        expression = expression.replace(name, VARIABLES[name])
    assert "$" not in expression, expression
    return expression
