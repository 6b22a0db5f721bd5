"""The queries of the dashboards, as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

Key = tuple[str, str, str]  # uid of the dashboard, title of the panel, legend of the query
ALL: Final = ("$cluster", "$queue", "$flavor", "$namespace", "$gang", "$node")
VARIABLES: Final = {
    "$__rate_interval": "15s",
    "$__interval": "5s",
    "$__range": "5m",
    "$price": "2.50",
    **dict.fromkeys(ALL, ".*"),
}
LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")


def expressions(folder: Path) -> Iterator[tuple[Key, str]]:
    """Of every panel of every dashboard, with values for the variables: a short time, and all of everything."""
    for path in sorted(folder.glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        for panel in model["panels"]:
            for target in panel.get("targets", ()):
                yield (model["uid"], panel["title"], target["legendFormat"]), substituted(target["expr"])


def others(folder: Path) -> Iterator[tuple[Key, str]]:
    """What fills the variables' choices, as a query of what has the label, and the events of annotations."""
    for path in sorted(folder.glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        for variable in model["templating"]["list"]:
            if variable["type"] == "query":
                series, label = LABEL_VALUES.fullmatch(variable["definition"]).groups()  # type: ignore[union-attr]
                yield (model["uid"], "variable", variable["name"]), f"count by ({label}) ({substituted(series)})"
        for annotation in model["annotations"]["list"]:
            yield (model["uid"], "annotation", annotation["name"]), substituted(annotation["expr"])


def substituted(expression: str) -> str:
    for name in sorted(VARIABLES, key=len, reverse=True):
        expression = expression.replace(name, VARIABLES[name])
    assert "$" not in expression, expression
    return expression
