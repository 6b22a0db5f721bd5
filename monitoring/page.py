"""docs/dashboards.md: each dashboard with its panels and their questions, from the panels' own descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from monitoring.grafana import Dashboard

HEAD = """\
# Dashboards: which question each panel answers

Written by `make manifests` from `monitoring/dashboards`, where the text is changed; the same text is each panel's description in Grafana.
How to install them: [monitoring.md](monitoring.md). What the metrics mean: [metrics.md](metrics.md).
"""


def render(dashboards: Iterable[Dashboard]) -> str:
    return HEAD + "".join(line for each in dashboards for line in _section(each))


def _section(dashboard: Dashboard) -> Iterator[str]:
    yield f"\n## {dashboard.title.removeprefix('Fairlead / ')}\n\n{dashboard.question} (uid `{dashboard.uid}`)\n"
    yield "\n| panel | question |\n|---|---|\n"
    for title, panels in dashboard.rows:
        yield f"| **{title}** | |\n"
        for panel in panels:
            yield f"| {panel.title} | {panel.question} |\n"
