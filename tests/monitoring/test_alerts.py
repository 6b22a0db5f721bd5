"""Every alert fires when it should and does not when it should not: promtool runs the cases in alerts/*.yaml on the chart's rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import prometheus

pytestmark = pytest.mark.slow

CASES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
RULES = prometheus.alerts()


def load(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(path.read_text(encoding="utf-8")))


def asked(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"fires": [], **each} for each in case["at"]]


def promtool_test(case: dict[str, Any]) -> dict[str, Any]:
    """Where each alert has its description the whole alert is compared, else its labels."""
    whole, labels = [], []
    for each in asked(case):
        if all("says" in fired for fired in each["fires"]):
            whole.append(
                {
                    "eval_time": f"{each['minute']}m",
                    "alertname": each["alert"],
                    "exp_alerts": [expected(each["alert"], fired) for fired in each["fires"]],
                }
            )
        else:
            labels.append(
                {
                    "expr": f'ALERTS{{alertname="{each["alert"]}", alertstate="firing"}}',
                    "eval_time": f"{each['minute']}m",
                    "exp_samples": [{"labels": sample(each["alert"], fired), "value": 1} for fired in each["fires"]],
                }
            )
    series = [{"series": name, "values": values} for name, values in case["series"].items()]
    return {
        "name": case["name"],
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": whole,
        "promql_expr_test": labels,
    }


def expected(alert: str, fired: dict[str, Any]) -> dict[str, Any]:
    rule = RULES[alert]
    labels = {**rule["labels"], **fired["labels"]}
    texts = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels.get(found[1], ""), text)
        for name, text in rule["annotations"].items()
        if name != "description"
    }
    texts["summary"] = fired.get("names", texts["summary"])
    return {"exp_labels": labels, "exp_annotations": {**texts, "description": fired["says"]}}


def sample(alert: str, fired: dict[str, Any]) -> str:
    labels = {"alertname": alert, "alertstate": "firing", **RULES[alert]["labels"], **fired["labels"]}
    return "ALERTS{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(path, tmp_path):
    file = tmp_path / "test.yaml"
    tests = [promtool_test(case) for case in load(path)]
    # Without an order promtool evaluates the groups in a random one, and an alert reads what its recording rule gave this minute or the last.
    order = [group["name"] for group in prometheus.groups()]
    content = {
        "rule_files": [str(prometheus.RULES)],
        "evaluation_interval": "1m",
        "group_eval_order": order,
        "tests": tests,
    }
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    prometheus.promtool("test", "rules", file)


def test_prometheus_accepts_the_rules():
    assert "SUCCESS" in prometheus.promtool("check", "rules", prometheus.RULES)


def test_every_alert_is_seen_to_fire_with_its_description_and_to_stay_silent():
    every = [each for path in CASES for case in load(path) for each in asked(case)]
    described = {each["alert"] for each in every if any("says" in fired for fired in each["fires"])}
    silent = {each["alert"] for each in every if not each["fires"]}
    assert described == set(RULES)
    assert silent == set(RULES)


def test_every_alert_has_what_who_is_paged_needs():
    for name, rule in RULES.items():
        assert re.fullmatch(r"Fairlead[A-Z]\w+", name)
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, name
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url", "dashboard_url"}, name


OF_THE_WHOLE = {
    "FairleadFleetUtilization", "FairleadForecastWrong", "FairleadControllerLeaderMissing", "FairleadDecisionSlow",
    "FairleadLedgerNotWritten", "FairleadLedgerGap", "FairleadWebhookDown", "FairleadWebhookFailing", "FairleadWebhookSlow",
    "FairleadWebhookCertificateExpiry", "FairleadWebhookCertificateUnusable", "FairleadDriversMissing",
}  # fmt: skip
"""Alerts of which there is one in a cluster: they have no label to name."""


def test_a_summary_names_what_its_alert_is_about():
    for name, rule in RULES.items():
        summary, labels = rule["annotations"]["summary"], re.findall(r"by \(([^)]*)\)", rule["expr"])
        assert ("{{" not in summary) == (name in OF_THE_WHOLE), name
        for label in ("queue", "gang", "node", "claim"):
            told = f"$labels.{label} " in rule["annotations"]["description"]
            assert not told or f"$labels.{label} " in summary, (name, label)
        if re.search(r"\bqueue\b", " ".join(labels)):
            assert "$labels.queue " in summary, name
