"""The chart: one source for helm and kustomize, values that mean something, pods that hang together."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from fairlead.cli.main import app
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.pod_commands import port_number

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
OVERLAYS = sorted(path.parent.name for path in (ROOT / "manifests" / "overlays").glob("*/values.yaml"))
HELM_LABELS = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "fairlead-0.1.0"}


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name, without what only helm writes."""
    found = {}
    for each in copy.deepcopy(objects):
        labels = each["metadata"].get("labels") or {}
        for key, value in HELM_LABELS.items():
            if labels.get(key) == value:
                del labels[key]
        if each["kind"] == "CustomResourceDefinition":  # kustomize applies those of manifests/crds, without labels
            each["metadata"].pop("labels", None)
            each["metadata"].pop("annotations", None)
        found[each["kind"], each["metadata"]["name"]] = each
    assert len(found) == len(objects)
    return found


def workloads(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] in {"Deployment", "DaemonSet"}]


def test_what_is_committed_is_what_the_chart_renders(helm):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "render.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
def test_helm_and_kustomize_install_the_same(template, kubectl, overlay, tmp_path):
    folder = ROOT / "manifests" / ("base" if not overlay else f"overlays/{overlay}")
    values = {"namespace": {"create": True}}
    if overlay:
        values |= yaml.safe_load((folder / "values.yaml").read_text())
    built = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    kustomized = list(yaml.safe_load_all(built.stdout))
    assert by_name(kustomized) == by_name(template(values=values))
    assert by_name(manifests.load(folder)) == by_name(kustomized), "and the sandbox reads what kustomize does"


def test_the_chart_lints_without_a_warning(helm):
    done = subprocess.run(
        [helm, "lint", "--strict", "--namespace", "fairlead-system", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"webhok": {}}, "'webhok' not allowed"),
        ({"driver": {"pool": []}}, "'pool' not allowed"),
        ({"controller": {"replicas": 0}}, "minimum: got 0, want 1"),
        ({"driver": {"pools": [{"name": "a", "backend": "cuda"}]}}, "does not match pattern"),
        ({"driver": {"pools": [{"name": "a", "backend": "nvml"}] * 2}}, 'two pools are called "a"'),
        ({"managedDrivers": ["gpu.nvidia.com"]}, "nobody would allocate them; add it, or set driver.enabled=false"),
        ({"claimControllers": ["o'brien"]}, "does not match pattern"),
        (
            {"ui": {"enabled": True, "login": "proxy"}},
            "whoever can reach the pages could be anybody; set ui.proxy.secret",
        ),
        ({"ui": {"enabled": True, "login": "proxy", "proxy": {"names": ["p"]}}}, "set ui.proxy.secret"),
        ({"ui": {"urls": ["http://gpus.example.com"]}}, "does not match pattern"),
    ],
)
def test_values_that_mean_nothing_are_refused_with_the_way_out(refusal, values, said):
    assert said in refusal(values)


def test_another_namespace_is_refused(refusal):
    assert 'namespace "gpu": Fairlead is installed into fairlead-system' in refusal({}, namespace="gpu")


def test_every_value_is_in_the_schema_and_the_other_way_round():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def paths(value: Any, prefix: str = "") -> set[str]:
        if not isinstance(value, dict) or not value:
            return {prefix}
        return {path for key, each in value.items() for path in paths(each, f"{prefix}.{key}")}

    def allowed(node: dict[str, Any], prefix: str = "") -> set[str]:
        if "properties" not in node:
            return {prefix}
        return {path for key, each in node["properties"].items() for path in allowed(each, f"{prefix}.{key}")}

    known, given = allowed(schema), paths(values)
    assert {path for path in given if not any(path.startswith(k) or k.startswith(path) for k in known)} == set()
    assert {path for path in known if not any(g.startswith(path) or path.startswith(g) for g in given)} == {".global"}


def test_nvidias_driver_can_be_the_one_that_is_managed(template):
    objects = by_name(template(values={"driver": {"enabled": False}, "managedDrivers": ["gpu.nvidia.com"]}))
    assert not [name for kind, name in objects if "driver" in name]
    fence = yaml.safe_dump(objects["ValidatingAdmissionPolicy", "fairlead-allocation-fence"])
    assert "['gpu.nvidia.com']" in fence
    for name in ("fairlead-webhook", "fairlead-controller"):
        assert "--managed-driver=gpu.nvidia.com" in container(objects["Deployment", name])["args"]


def test_pools_are_daemonsets_of_their_own_with_flags_of_their_own(template):
    pools = [
        {"name": "whole", "backend": "nvml", "nodeSelector": {"pool": "a"}},
        {"name": "cut", "backend": "nvml", "dynamicMig": True, "nodeSelector": {"pool": "b"}},
    ]
    objects = by_name(template(values={"driver": {"pools": pools}}))
    whole, cut = (objects["DaemonSet", f"fairlead-driver-{name}"] for name in ("whole", "cut"))
    assert "--dynamic-mig" in container(cut)["args"]
    assert "--dynamic-mig" not in container(whole)["args"]
    assert whole["spec"]["selector"] != cut["spec"]["selector"]


def test_without_a_surge_sockets_have_one_name_and_one_driver_runs_at_a_time(template):
    driver = by_name(template(values={"driver": {"maxSurge": 0}}))["DaemonSet", "fairlead-driver"]
    assert driver["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert [variable["name"] for variable in container(driver)["env"]] == ["NODE_NAME"]


def test_crds_are_upgraded_with_the_chart_and_stay_when_it_goes(template):
    crds = [each for each in template() if each["kind"] == "CustomResourceDefinition"]
    assert len(crds) == 4
    assert all(each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for each in crds)
    assert not (CHART / "crds").exists(), "helm never upgrades what lies there"


def test_an_uninstall_asks_first(template):
    hooks = [each for each in template(hooks=True) if "helm.sh/hook" in (each["metadata"].get("annotations") or {})]
    assert {each["kind"] for each in hooks} == {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    (job,) = (each for each in hooks if each["kind"] == "Job")
    assert container(job)["args"][0] == "drain"


# -- how the objects hang together ---------------------------------------------------------------------------------


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
    pool = {"name": "", "backend": "nvml", "dynamicMig": True, "sharedGpus": True, "sharedMig": True}
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


def monitors(template, **values: Any) -> set[str]:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    found = template(values={"monitoring": values})
    names = {each["metadata"]["name"] for each in found if each["kind"] == "ConfigMap"}
    return {each["kind"] for each in found if each["kind"] in kinds} | {name.rpartition("-")[0] for name in names}


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
    written = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
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
    found = [e for e in template(values={"monitoring": {"enabled": True}}) if e["kind"] == "ConfigMap"]
    files = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert len(found) == len(files) == 7
    for each in found:
        ((name, text),) = each["data"].items()
        assert text == files[name]
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Fairlead"}


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


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


# -- the pages -----------------------------------------------------------------------------------------------------


def test_the_pages_read_what_they_show_and_write_nothing_but_reviews(template):
    objects = by_name(template(values={"ui": {"enabled": True}}))
    rules = objects["ClusterRole", "fairlead-ui"]["rules"]
    written = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert {each for each in written if each[1] not in {"list", "watch"}} == {
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }
    assert not {"secrets", "configmaps"} & {resource for resource, _ in written}
    assert objects["Role", "fairlead-ui"]["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["fairlead-run-history"], "verbs": ["get"]}
    ]
    without = by_name(template(values={"ui": {"enabled": True, "whatIf": False}}))
    assert ("Role", "fairlead-ui") not in without
    listed = {each for rule in without["ClusterRole", "fairlead-ui"]["rules"] for each in rule["resources"]}
    assert not {"namespaces", "jobs", "priorityclasses"} & listed
    assert "--no-what-if" in without["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_pages_have_the_url_of_a_ledger_in_a_database_and_a_way_to_it(template):
    ledger = {"controller": {"ledger": {"urlSecret": "ledger-url"}}}
    objects = by_name(template(values={"ui": {"enabled": True}, **ledger}))
    (container,) = objects["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"]
    source = {"valueFrom": {"secretKeyRef": {"name": "ledger-url", "key": "url"}}}
    assert container["env"] == [{"name": "FAIRLEAD_LEDGER", **source}]
    ports = [port for each in objects["NetworkPolicy", "fairlead-ui"]["spec"]["egress"] for port in each["ports"]]
    assert {"port": 5432} in ports
    plain = by_name(template(values={"ui": {"enabled": True}}))
    assert "env" not in plain["Deployment", "fairlead-ui"]["spec"]["template"]["spec"]["containers"][0]


def test_without_the_value_nothing_of_the_pages_is_installed(template):
    assert [each for each in by_name(template()) if "ui" in each[1].split("-")] == []


@pytest.mark.parametrize(
    ("values", "arguments", "volumes"),
    [
        ({}, {"--login=token", "--audience=fairlead-ui"}, {}),
        ({"tlsSecret": "mine"}, {"--certificate-from=/etc/fairlead/ui"}, {"certificate": "mine"}),
        (
            {"login": "proxy", "proxy": {"secret": "shared", "userPrefix": "oidc:"}},
            {"--login=proxy", "--proxy-secret-file=/etc/fairlead/proxy/secret", "--user-prefix=oidc:"},
            {"proxy": "shared"},
        ),
        (
            {"login": "proxy", "proxy": {"clientCaSecret": "ca", "names": ["a", "b"]}},
            {"--client-ca=/etc/fairlead/client-ca/ca.crt", "--proxy-name=a", "--proxy-name=b"},
            {"client-ca": "ca"},
        ),
        (
            {"urls": ["https://gpus.example.com"], "clusterTokens": True},
            {"--url=https://gpus.example.com", "--cluster-tokens"},
            {},
        ),
    ],
    ids=["token", "certificate", "secret", "mTLS", "address"],
)
def test_each_login_has_its_flags_and_its_secrets(template, values, arguments, volumes):
    objects = by_name(template(values={"ui": {"enabled": True, **values}}))
    deployment = objects["Deployment", "fairlead-ui"]
    of = container(deployment)
    assert arguments <= set(of["args"])
    found = deployment["spec"]["template"]["spec"].get("volumes") or []
    assert {each["name"]: each["secret"]["secretName"] for each in found} == volumes
    assert {each["name"] for each in of.get("volumeMounts") or []} == set(volumes)
    reviews = "tokenreviews" in yaml.safe_dump(objects["ClusterRole", "fairlead-ui"])
    assert reviews == (values.get("login") != "proxy")


def test_cert_manager_makes_the_certificate_of_the_pages_too(template):
    values = {"certManager": {"enabled": True}, "ui": {"enabled": True, "urls": ["https://gpus.example.com:8443"]}}
    objects = by_name(template(values=values))
    assert "gpus.example.com" in objects["Certificate", "fairlead-ui"]["spec"]["dnsNames"]
    assert "--certificate-from=/etc/fairlead/ui" in container(objects["Deployment", "fairlead-ui"])["args"]


def test_rights_for_autoscaling_are_given_only_where_asked_for(template):
    def rules(kind: str, **values: bool) -> list[dict[str, Any]]:
        found = by_name(template(values={"autoscaling": values}))
        return list(found[kind, "fairlead-controller"]["rules"])

    def names(values: dict[str, bool]) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in template(values={"autoscaling": values})}

    requests = {
        "apiGroups": ["autoscaling.x-k8s.io"],
        "resources": ["provisioningrequests"],
        "verbs": ["list", "create", "delete"],
    }
    templates = {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["create", "delete"]}
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    assert requests not in rules("ClusterRole")
    assert templates not in rules("ClusterRole")
    assert requests in rules("ClusterRole", provisioningRequests=True)
    assert templates in rules("ClusterRole", provisioningRequests=True)
    assert pods not in rules("Role")
    assert pods in rules("Role", placeholders=True)
    assert ("PriorityClass", "fairlead-placeholder") not in names({})
    assert ("PriorityClass", "fairlead-placeholder") in names({"placeholders": True})
