"""mixin.libsonnet holds the chart's dashboards and rules, under the names that mixins have, and takes addresses from _config."""

from __future__ import annotations

import json

import pytest

from monitoring.__main__ import FOLDER
from tests.support import prometheus

jsonnet = pytest.importorskip("_jsonnet", reason="jsonnet is not installed: pip install jsonnet")
MIXIN = prometheus.ROOT / "monitoring" / "mixin.libsonnet"


def evaluate(expression: str, config: str = "{}"):
    snippet = f"local mixin = (import '{MIXIN}') + {{ _config+:: {config} }}; {expression}"
    return json.loads(jsonnet.evaluate_snippet("test", snippet))


def test_it_has_every_dashboard():
    written = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
    assert evaluate("mixin.grafanaDashboards") == written


def test_rules_and_alerts_together_are_the_rules_of_the_chart():
    both = evaluate("mixin.prometheusRules.groups + mixin.prometheusAlerts.groups")
    assert [rule for group in both for rule in group["rules"]] == prometheus.rules()
    names = [group["name"] for group in both]
    assert len(names) == len(set(names))


def test_addresses_labels_and_tags_come_from_config():
    config = """{
      runbookUrl: 'https://wiki/x', grafanaUrl: 'https://grafana', alertLabels: { team: 'ml' }, dashboardTags: ['prod']
    }"""
    alerts = [rule for group in evaluate("mixin.prometheusAlerts", config)["groups"] for rule in group["rules"]]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"https://wiki/x#{rule['alert'].lower()}"
        assert rule["annotations"]["dashboard_url"].startswith("https://grafana/d/fairlead-")
        assert rule["labels"]["team"] == "ml"
        assert "severity" in rule["labels"]
    dashboards = evaluate("mixin.grafanaDashboards", config)
    assert all("prod" in each["tags"] and "fairlead" in each["tags"] for each in dashboards.values())
