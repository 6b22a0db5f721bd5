"""How the objects of the chart hang together: selectors, ports, flags, probes, spread, and what monitoring brings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from fairlead.cli.main import app
from fairlead.sandbox.install.pod_commands import port_number
from tests.support import quick_yaml
from tests.support.chart import by_name, container, workloads

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"


@pytest.mark.parametrize("name", ["fairlead-webhook", "fairlead-controller", "fairlead-uninstall", "fairlead-ui"])
def test_all_but_the_driver_meet_the_restricted_pod_security_standard(template, name):
    objects = template(hooks=True, values={"ui": {"enabled": True}})
    (each,) = (o for o in objects if o["kind"] in {"Deployment", "Job"} and o["metadata"]["name"] == name)
    pod = each["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not [volume for volume in pod.get("volumes") or () if "hostPath" in volume]
    assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    context = container(each)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True


def test_a_simulated_driver_is_not_privileged(template):
    values = {"driver": {"pools": [{"name": "", "backend": "simulated:l40s"}]}}
    driver = by_name(template(values=values))["DaemonSet", "fairlead-driver"]
    assert "privileged" not in container(driver)["securityContext"]
    assert not driver["spec"]["template"]["spec"].get("hostPID")


def test_every_selector_selects_the_pods_that_it_is_meant_for(template):
    objects = template(
        values={"monitoring": {"serviceMonitor": {"enabled": True}}, "ui": {"enabled": True, "replicas": 2}}
    )
    pods = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in workloads(objects)}

    def chosen(labels: dict[str, str]) -> set[str]:
        return {name for name, of_pod in pods.items() if labels.items() <= of_pod.items()}

    for each in objects:
        spec, name = each.get("spec") or {}, each["metadata"]["name"]
        if each["kind"] == "Service":
            assert chosen(spec["selector"]) == ({name} if name in pods else set(pods))
        elif each["kind"] == "NetworkPolicy":
            assert chosen(spec["podSelector"]["matchLabels"]) == {name}
        elif each["kind"] in {"PodDisruptionBudget", "Deployment", "DaemonSet"}:
            assert chosen(spec["selector"]["matchLabels"]) == {name}


def test_every_port_that_is_named_is_declared(template):
    for each in workloads(template(values={"ui": {"enabled": True}})):
        of = container(each)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in of:
                port_number(of, of[probe]["httpGet"]["port"])
        for flag in of["args"]:
            if bind := re.fullmatch(r"--(?:metrics-)?bind=0\.0\.0\.0:(\d+)", flag):
                port_number(of, int(bind[1]))


def test_every_flag_is_one_that_the_program_has(template):
    pool = {
        "name": "",
        "backend": "nvml",
        "dynamicMig": True,
        "sharedGpus": True,
        "sharedMig": True,
        "sharedLimits": "MPS",
    }
    values = {
        "driver": {
            "pools": [pool],
            "dcgmMetrics": True,
            "nodeLabels": {"enabled": True},
            "migLayouts": {"enabled": True},
            "extraArgs": ["--no-device-metadata"],
        },
        "certManager": {"enabled": True},
    }
    command: Any = typer.main.get_command(app)
    for each in [*workloads(template(values=values)), *(o for o in template(hooks=True) if o["kind"] == "Job")]:
        name, *flags = container(each)["args"]
        known = {
            option
            for parameter in command.commands[name].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert [flag for flag in flags if flag.partition("=")[0] not in known] == [], name


def test_the_controller_forecasts_records_and_accounts_unless_told_otherwise(template):
    def controller(values: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        (found,) = (
            each
            for each in template(values={"controller": values})
            if (each["kind"], each["metadata"]["name"]) == ("Deployment", "fairlead-controller")
        )
        pod: dict[str, Any] = found["spec"]["template"]
        wanted = ("forecast", "record", "ledger")
        return [each for each in container(found)["args"] if any(word in each for word in wanted)], pod

    recorded = ["--record=/var/lib/fairlead/recording", "--record-max-size=1Gi", "--record-max-age=14d"]
    accounted = ["--ledger-keep=400d"]
    local = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    ledger = {"name": "ledger", "emptyDir": {"sizeLimit": "2Gi"}}
    arguments, pod = controller({})
    assert arguments == ["--forecast", *recorded, *accounted]
    assert pod["spec"]["volumes"] == [{"name": "recording", "emptyDir": {"sizeLimit": "2Gi"}}, ledger]
    assert pod["metadata"]["annotations"] == {local: "recording,ledger"}
    environment = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert environment["FAIRLEAD_LEDGER"] == "/var/lib/fairlead/ledger"
    kept = {"persistentVolumeClaim": {"claimName": "fairlead-recording"}}
    arguments, pod = controller({"record": {"volume": kept}, "ledger": {"labels": ["team", "project"]}})
    assert arguments == ["--forecast", *recorded, *accounted, "--ledger-label=team", "--ledger-label=project"]
    assert pod["spec"]["volumes"] == [{"name": "recording", **kept}, ledger]
    assert pod["metadata"]["annotations"] == {local: "ledger"}
    larger = {"emptyDir": {"sizeLimit": "20Gi"}}
    _, pod = controller({"record": {"volume": larger}, "ledger": {"volume": kept}})
    assert pod["spec"]["volumes"] == [{"name": "recording", **larger}, {"name": "ledger", **kept}]
    assert pod["metadata"]["annotations"] == {local: "recording"}
    arguments, pod = controller({"forecast": False, "record": {"enabled": False}, "ledger": {"enabled": False}})
    assert arguments == ["--no-forecast"]
    assert "volumes" not in pod["spec"]
    assert "annotations" not in pod["metadata"]


def test_a_ledger_in_a_database_has_its_address_from_a_secret_and_needs_no_volume(template):
    objects = template(values={"controller": {"ledger": {"urlSecret": "bills"}}})
    (found,) = (
        each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Deployment", "fairlead-controller")
    )
    assert "--ledger-keep=400d" in container(found)["args"]
    (source,) = (each["valueFrom"] for each in container(found)["env"] if each["name"] == "FAIRLEAD_LEDGER")
    assert source == {"secretKeyRef": {"name": "bills", "key": "url"}}
    assert [each["name"] for each in found["spec"]["template"]["spec"]["volumes"]] == ["recording"]

    def out(component: str) -> list[Any]:
        (policy,) = (
            each
            for each in objects
            if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", f"fairlead-{component}")
        )
        return [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]

    assert 5432 in out("controller")
    assert 5432 not in out("webhook")


def test_traces_go_where_one_value_says_from_every_program_and_nowhere_without_it(template):
    text = str(template())
    assert "otlp" not in text.lower()
    for endpoint, port in (
        ("http://collector.observability:4318", 4318),
        ("https://collector", 443),
        ("http://[::1]", 80),
    ):
        tracing = {"endpoint": endpoint, "ratio": 0.1, "headersSecret": "otlp"}
        objects = by_name(template(values={"tracing": tracing}))
        for kind, program in (("DaemonSet", "driver"), ("Deployment", "webhook"), ("Deployment", "controller")):
            traced = container(objects[kind, f"fairlead-{program}"])
            assert f"--otlp-endpoint={endpoint}" in traced["args"]
            assert ("--trace-ratio=0.1" in traced["args"]) == (program != "driver")
            (headers,) = [each for each in traced["env"] if each["name"] == "OTEL_EXPORTER_OTLP_HEADERS"]
            assert headers["valueFrom"]["secretKeyRef"] == {"name": "otlp", "key": "headers"}
            policy = objects["NetworkPolicy", f"fairlead-{program}"]
            assert {"ports": [{"port": port}]} in policy["spec"]["egress"]


def test_replicas_spread_and_keep_one_another_company(template):
    objects = by_name(template())
    for name in ("fairlead-webhook", "fairlead-controller"):
        deployment = objects["Deployment", name]
        assert deployment["spec"]["replicas"] == 2
        keys = [each["topologyKey"] for each in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        assert objects["PodDisruptionBudget", name]["spec"]["maxUnavailable"] == 1
    # A webhook that answers is never taken away before another one does.
    strategy = objects["Deployment", "fairlead-webhook"]["spec"]["strategy"]
    assert strategy == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_the_controller_may_take_back_what_it_gave(template):
    rules = by_name(template())["ClusterRole", "fairlead-controller"]["rules"]
    may = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    wanted = {
        ("pods", "delete"),
        ("pods/eviction", "create"),
        ("resourceclaims", "delete"),
        ("resourceclaims/status", "patch"),
    }
    assert wanted <= may


def monitors(template, **values: Any) -> set[str]:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    found = template(values={"monitoring": values})
    names = {each["metadata"]["name"] for each in found if each["kind"] == "ConfigMap" and "data" in each}
    return {each["kind"] for each in found if each["kind"] in kinds} | {
        name.partition("-dashboard")[0] + "-dashboard" for name in names
    }


@pytest.mark.slow
def test_one_value_brings_all_of_monitoring_and_each_part_can_be_left_out_or_come_alone(template):
    every = {"ServiceMonitor", "PrometheusRule", "fairlead-dashboard"}
    assert monitors(template) == set()
    assert monitors(template, enabled=True) == every
    parts = {"serviceMonitor": "ServiceMonitor", "rules": "PrometheusRule", "dashboards": "fairlead-dashboard"}
    for value, part in parts.items():
        assert monitors(template, enabled=True, **{value: {"enabled": False}}) == every - {part}
        assert monitors(template, **{value: {"enabled": True}}) == {part}


def test_series_keep_the_labels_that_name_claims_and_containers(template):
    """Without honorLabels Prometheus would call a claim's namespace exported_namespace, and no join would find it."""
    (monitor,) = (e for e in template(values={"monitoring": {"enabled": True}}) if e["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert [each["targetLabel"] for each in endpoint["relabelings"]] == ["job", "node"]


def test_the_rules_of_the_chart_are_those_that_are_tested_with_the_addresses_that_are_given(template):
    written = quick_yaml.load((CHART / "files" / "rules.yaml").read_text())
    kinds: dict[str, Any] = {"enabled": True, "labels": {"release": "prometheus"}}

    def rule(**values: str) -> dict[str, Any]:
        (found,) = (e for e in template(values={"monitoring": kinds | values}) if e["kind"] == "PrometheusRule")
        return dict(found)

    assert rule()["spec"] == written
    assert rule()["metadata"]["labels"]["release"] == "prometheus"
    elsewhere = rule(runbooks="https://wiki.example.com/fairlead", grafana="https://grafana.example.com/")
    texts = [each["annotations"] for group in elsewhere["spec"]["groups"] for each in group["rules"] if "alert" in each]
    assert {text["runbook_url"].partition("#")[0] for text in texts} == {"https://wiki.example.com/fairlead"}
    assert {text["dashboard_url"].partition("/d/fairlead-")[0] for text in texts} == {"https://grafana.example.com"}


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_takes(template):
    found = [e for e in template(values={"monitoring": {"enabled": True}}) if e["kind"] == "ConfigMap" and "data" in e]
    files = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert len(found) == len(files) == 8
    for each in found:
        ((name, text),) = each["data"].items()
        assert text == files[name]
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Fairlead"}


def test_only_namespaces_that_an_administrator_labels_reach_the_metrics(template):
    """The driver's metrics name claims and pods of every tenant."""
    policies = [each for each in template() if each["kind"] == "NetworkPolicy"]
    assert len(policies) == 3
    for each in policies:
        (scrapes,) = (rule for rule in each["spec"]["ingress"] if {"port": "metrics"} in rule["ports"])
        assert scrapes["from"] == [{"namespaceSelector": {"matchLabels": {"fairlead.dev/metrics": "allowed"}}}]
        assert len(scrapes["ports"]) == 1


def test_the_webhooks_probes_ask_the_server_that_answers_reviews(template):
    (webhook,) = (each for each in workloads(template()) if each["metadata"]["name"] == "fairlead-webhook")
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container(webhook)[probe]["httpGet"] == {"path": path, "port": "webhook", "scheme": "HTTPS"}


def test_rights_for_autoscaling_are_given_only_where_asked_for(template):
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    templates = {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["create", "delete"]}
    requests = {"apiGroups": ["autoscaling.x-k8s.io"], "resources": ["provisioningrequests"], "verbs": ["list", "create", "delete"]}  # fmt: skip
    for values in ({}, {"provisioningRequests": True}, {"placeholders": True}):
        found = by_name(template(values={"autoscaling": values}))
        rules = found["ClusterRole", "fairlead-controller"]["rules"]
        assert [requests in rules, templates in rules] == ["provisioningRequests" in values] * 2
        assert (pods in found["Role", "fairlead-controller"]["rules"]) == ("placeholders" in values)
        assert (("PriorityClass", "fairlead-placeholder") in found) == ("placeholders" in values)
