"""The parts of a Grafana dashboard, as values, and the JSON that Grafana loads: classic schema, core panels, no plugin.

A panel states the question that it answers; Grafana shows it as the panel's description, and docs/dashboards.md lists it. Each dashboard
asks for the clusters that are chosen at its head: `.*` where series have no label `cluster`.
Equal values give equal bytes: ids count from 1 in the order of the panels, and places follow from widths, row by row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

SCHEMA_VERSION: Final = 39  # Grafana 11
WIDTH: Final = 24
TAG: Final = "fairlead"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
Json = dict[str, Any]
Steps = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of each series that it gives, with labels as `{{label}}`; of a column also its unit."""

    expr: str
    legend: str = ""
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. `steps`: from which value on which colour, beside the colour `base`; `columns`: of a table, label to heading."""

    kind: str
    title: str
    question: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    height: int = 8
    base: str = GREEN
    steps: Steps = ()
    least: float | None = None
    most: float | None = None
    stacked: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    drill_down: str = ""  # a path with Grafana's variables, opened from the first column


@dataclass(frozen=True)
class Variable:
    """A choice of values of a label, at the head of the dashboard; `text` makes it a field to type into instead."""

    name: str
    label: str
    query: str = ""
    text: str = ""


@dataclass(frozen=True)
class Dashboard:
    """Rows of panels, each with a title."""

    uid: str
    title: str
    question: str
    variables: tuple[Variable, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    span: str = "now-6h"

    @property
    def panels(self) -> Iterator[Panel]:
        for _, panels in self.rows:
            yield from panels


def graph(title: str, question: str, *queries: Query, **options: Any) -> Panel:
    return Panel(kind="timeseries", title=title, question=question, queries=queries, **options)


def stat(title: str, question: str, *queries: Query, **options: Any) -> Panel:
    return Panel(kind="stat", title=title, question=question, queries=queries, **{"width": 4, "height": 4, **options})


def bars(title: str, question: str, *queries: Query, **options: Any) -> Panel:
    return Panel(kind="bargauge", title=title, question=question, queries=queries, **options)


def heatmap(title: str, question: str, *queries: Query, **options: Any) -> Panel:
    return Panel(kind="heatmap", title=title, question=question, queries=queries, **options)


def table(title: str, question: str, columns: Mapping[str, str], *queries: Query, **options: Any) -> Panel:
    return Panel(
        kind="table", title=title, question=question, queries=queries, columns=columns, **{"width": 24, **options}
    )


def render(dashboard: Dashboard) -> str:
    """The file's text."""
    return json.dumps(model(dashboard), indent=1, ensure_ascii=False) + "\n"


def model(dashboard: Dashboard) -> Json:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.question,
        "tags": [TAG, "gpu"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": dashboard.span, "to": "now"},
        "timezone": "",
        "links": [_LINK],
        "annotations": {"list": [_EVICTIONS]},
        "templating": {"list": [_SOURCE, _variable(_CLUSTER), *map(_variable, map(_of_clusters, dashboard.variables))]},
        "panels": list(_placed(dashboard)),
    }


_SERIES: Final = re.compile(r"(?<![\w:\"])(fairlead[_:][\w:]+|ALERTS|up)(?![\w:(\"])(\{?)")


def in_clusters(expression: str) -> str:
    """PromQL, or a query for label values, of the chosen clusters alone."""
    chosen = 'cluster=~"$cluster"'
    return _SERIES.sub(lambda found: f"{found[1]}{{{chosen}, " if found[2] else f"{found[1]}{{{chosen}}}", expression)


def _of_clusters(variable: Variable) -> Variable:
    return replace(variable, query=in_clusters(variable.query))


_CLUSTER: Final = Variable("cluster", "Cluster", "label_values(fairlead_controller_leader, cluster)")
_LINK: Final = {
    "type": "dashboards",
    "title": "Fairlead",
    "tags": [TAG],
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
    "url": "",
}
_SOURCE: Final = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}
_EVICTIONS: Final = {
    "name": "Evictions",
    "datasource": DATASOURCE,
    "enable": True,
    "hide": False,
    "iconColor": RED,
    # The second part: a counter is born with its first eviction, which increase() does not see.
    "expr": in_clusters(
        'sum by (kind) (increase(fairlead_controller_evictions_total{outcome="evicted"}[1m]) > 0 or '
        '(fairlead_controller_evictions_total{outcome="evicted"} unless '
        "count_over_time(fairlead_controller_evictions_total[1h] offset 1m)))"
    ),
    "titleFormat": "eviction ({{kind}})",
    "step": "60s",
}


def _variable(variable: Variable) -> Json:
    common = {"name": variable.name, "label": variable.label, "hide": 0}
    if variable.text:
        current = {"text": variable.text, "value": variable.text}
        return {**common, "type": "textbox", "query": variable.text, "current": current, "options": [current]}
    return {
        **common,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _placed(dashboard: Dashboard) -> Iterator[Json]:
    """Rows one below the other; in each, panels from left to right, and below where no room is left."""
    y, number = 0, 0
    for title, panels in dashboard.rows:
        number += 1
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        y, x, height = y + 1, 0, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            yield _panel(panel, number, place)
            x, height = x + panel.width, max(height, panel.height)
        y += height


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.question,
        "type": panel.kind,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _OPTIONS[panel.kind],
        "targets": [_target(panel, query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        **({"transformations": _columns(panel)} if panel.kind == "table" else {}),
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": panel.base, "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.steps]
    found: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.least is not None:
        found["min"] = panel.least
    if panel.most is not None:
        found["max"] = panel.most
    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }
    elif panel.steps:
        found["color"] = {"mode": "thresholds"}
    return found


def _overrides(panel: Panel) -> list[Json]:
    """Queries with a unit of their own; and in a table the first column leads to `drill_down`."""
    found = [(query.legend, "unit", query.unit) for query in panel.queries if query.unit]
    if panel.drill_down:
        link: Any = [{"title": "Open", "url": panel.drill_down, "targetBlank": False}]
        found.append((next(iter(panel.columns.values())), "links", link))
    return [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": key, "value": value}]}
        for name, key, value in found
    ]


def _target(panel: Panel, query: Query, ref: str) -> Json:
    found: Json = {
        "refId": ref,
        "datasource": DATASOURCE,
        "expr": in_clusters(query.expr),
        "legendFormat": query.legend,
    }
    if panel.kind == "table":
        return {**found, "format": "table", "instant": True, "range": False}
    if panel.kind in {"stat", "bargauge"}:
        return {**found, "instant": True, "range": False}
    if panel.kind == "heatmap":
        return {**found, "format": "heatmap"}
    return found


def _columns(panel: Panel) -> list[Json]:
    """One row for each set of labels, the named columns in their order, and no others but the values of the queries."""
    values = {
        "Value" if len(panel.queries) == 1 else f"Value #{chr(ord('A') + i)}": q.legend
        for i, q in enumerate(panel.queries)
    }
    renamed = {**panel.columns, **values}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "includeByName": dict.fromkeys(renamed, True),
                "indexByName": {name: index for index, name in enumerate(renamed)},
                "renameByName": renamed,
                "excludeByName": {"Time": True},
            },
        },
    ]


_OPTIONS: Final[dict[str, Json]] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
    },
    "bargauge": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "gradient",
        "orientation": "horizontal",
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": "s"},
        "tooltip": {"mode": "single", "yHistogram": False},
    },
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
}
