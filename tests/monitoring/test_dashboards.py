"""The dashboards: what is committed is what monitoring/ makes, Grafana can load it without a plugin, and every panel explains itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from monitoring.__main__ import FOLDER, files
from monitoring.dashboards import ALL
from tests.support import prometheus

CORE = {"row", "timeseries", "stat", "table", "heatmap", "bargauge"}
MODELS = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(model: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in model["panels"] if panel["type"] != "row"]


def recorded() -> set[str]:
    return {rule["record"] for rule in prometheus.rules() if "record" in rule}


def served() -> set[str]:
    """As documented; tests compare docs/metrics.md and docs/gpu-metrics.md with what the programs register."""
    text = "".join(
        (prometheus.ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("metrics.md", "gpu-metrics.md")
    )
    return set(re.findall(r"`(fairlead_\w+|container_gpu_allocation)`", text))


def metrics_of(expression: str) -> set[str]:
    """Names of metrics and recorded series, without what a histogram adds to its name."""
    names = re.findall(r"(?<![\w:])(fairlead[_:][\w:]+)", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def test_what_is_committed_is_what_monitoring_makes():
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make manifests`"
    assert {path.name for path in files() if path.suffix == ".json"} == set(MODELS)


def test_there_are_eight_with_addresses_that_stay():
    assert {model["uid"] for model in MODELS.values()} == {
        "fairlead-first-look",
        "fairlead-cluster", "fairlead-queues", "fairlead-waiting", "fairlead-gang", "fairlead-gpus", "fairlead-itself", "fairlead-cost",
    }  # fmt: skip
    assert [f"{model['uid']}.json" for model in MODELS.values()] == list(MODELS)
    titles = [model["title"] for model in MODELS.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
class TestDashboard:
    def test_grafana_loads_it_without_a_plugin_from_the_chosen_datasource(self, model):
        assert model["schemaVersion"] >= 39
        assert "id" not in model, "an id belongs to one Grafana"
        assert {panel["type"] for panel in model["panels"]} <= CORE
        source = model["templating"]["list"][0]
        assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
        for part in [*panels(model), *(target for panel in panels(model) for target in panel["targets"])]:
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}

    def test_it_asks_for_the_chosen_clusters_alone_and_for_all_where_series_have_no_such_label(self, model):
        chosen, *others = [each for each in model["templating"]["list"] if each["name"] not in {"datasource", "price"}]
        assert (chosen["name"], chosen["allValue"], chosen["current"]["value"]) == ("cluster", ".*", ["$__all"])
        asked = [target["expr"] for panel in panels(model) for target in panel["targets"]]
        asked += [each["expr"] for each in model["annotations"]["list"]] + [each["definition"] for each in others]
        for expression in asked:
            series = re.findall(r'(?<![\w:"])(?:fairlead[_:][\w:]+|ALERTS|up)(?=[\s{})\[,])(.{0,20})', expression)
            assert series, expression
            assert set(series) == {'{cluster=~"$cluster"'}, expression

    def test_it_links_to_the_others_and_keeps_time_and_variables(self, model):
        (link,) = model["links"]
        assert link["tags"] == ["fairlead"]
        assert "fairlead" in model["tags"]
        assert link["includeVars"] and link["keepTime"]

    def test_panels_neither_overlap_nor_leave_the_grid(self, model):
        ids = [panel["id"] for panel in model["panels"]]
        assert ids == list(range(1, len(ids) + 1))
        taken: set[tuple[int, int]] = set()
        for panel in model["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in cells) < 24
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_every_panel_says_which_question_it_answers_and_in_which_unit(self, model):
        titles = [panel["title"] for panel in panels(model)]
        assert len(set(titles)) == len(titles)
        for panel in panels(model):
            assert "?" in panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]

    def test_every_series_of_several_has_a_name(self, model):
        for panel in panels(model):
            if panel["type"] == "stat":
                assert len(panel["targets"]) == 1
                continue
            legends = [target["legendFormat"] for target in panel["targets"]]
            assert all(legends), panel["title"]
            assert len(set(legends)) == len(legends), panel["title"]
            for target in panel["targets"]:
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    assert re.search(rf"\b{label}\b", target["expr"]) or "fairlead:device_" in target["expr"], panel[
                        "title"
                    ]

    def test_every_variable_is_used_and_every_one_that_is_used_exists(self, model):
        declared = {variable["name"] for variable in model["templating"]["list"]}
        text = json.dumps(model)
        used = set(re.findall(r"\$\{?(?!__)([a-z]+)\b", text)) - {"datasource"}
        assert used | {"datasource"} == declared

    def test_every_link_to_a_dashboard_names_one(self, model):
        uids = {each["uid"] for each in MODELS.values()}
        assert set(re.findall(r"/d/([\w-]+)", json.dumps(model))) <= uids

    def test_it_asks_for_metrics_that_exist(self, model):
        asked = {name for panel in panels(model) for target in panel["targets"] for name in metrics_of(target["expr"])}
        assert asked <= served() | recorded()


def test_rules_ask_for_metrics_that_exist():
    for rule in prometheus.rules():
        assert metrics_of(rule["expr"]) <= served() | recorded(), rule


def test_alerts_lead_to_dashboards_and_to_variables_that_exist():
    variables = {model["uid"]: {each["name"] for each in model["templating"]["list"]} for model in MODELS.values()}
    for name, rule in prometheus.alerts().items():
        url = rule["annotations"]["dashboard_url"]
        uid = re.fullmatch(r"/d/([\w-]+)(\?.*)?", url)
        assert uid, name
        assert set(re.findall(r"var-(\w+)=", url)) <= variables[uid[1]], name


def test_the_questions_are_in_the_page():
    page = (prometheus.ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    for dashboard in ALL:
        for panel in dashboard.panels:
            assert f"| {panel.title} | {panel.question} |" in page
