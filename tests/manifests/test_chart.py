"""The chart: one source for helm and kustomize, values that mean something, pods that hang together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.sandbox.cpu_driver import CPUS
from fairlead.sandbox.install import manifests
from fairlead.sandbox.installation import also_managing
from fairlead.sandbox.network_driver import DRANET
from tests.support import quick_yaml
from tests.support.chart import by_name, container

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
OVERLAYS = sorted(path.parent.name for path in (ROOT / "manifests" / "overlays").glob("*/values.yaml"))


def test_what_is_committed_is_what_the_chart_renders(helm):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "render.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
def test_helm_and_kustomize_install_the_same(template, kubectl, overlay, tmp_path):
    folder = ROOT / "manifests" / ("base" if not overlay else f"overlays/{overlay}")
    values = {"namespace": {"create": True}}
    if overlay:
        values |= quick_yaml.load((folder / "values.yaml").read_text())
    built = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    kustomized = quick_yaml.load_all(built.stdout)
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
        ({"sharedClaimDrivers": ["Dra.Net"]}, "does not match pattern"),
        ({"sharedClaimDrivers": [names.DRIVER]}, "gpu.fairlead.dev is in managedDrivers, too"),
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


def test_without_a_driver_nothing_of_it_is_installed_and_the_fence_is_around_the_other_drivers_devices(template):
    values = quick_yaml.load((ROOT / "manifests" / "overlays" / "nvidia-driver" / "values.yaml").read_text())
    found = by_name(template(values=values))
    assert not [name for _, name in found if name.startswith("fairlead-driver") or "gpu.fairlead.dev" in name]
    assert not [kind for kind, _ in found if kind in {"DaemonSet", "DeviceClass"}]
    for program in ("controller", "webhook"):
        (container,) = found["Deployment", f"fairlead-{program}"]["spec"]["template"]["spec"]["containers"]
        assert [each for each in container["args"] if "--managed" in each] == ["--managed-driver=gpu.nvidia.com"]
    fence = found["ValidatingAdmissionPolicy", "fairlead-allocation-fence"]["spec"]
    assert "r.driver in ['gpu.nvidia.com']" in fence["matchConditions"][0]["expression"]
    assert "gpu.fairlead.dev'])" not in str(fence), "no filter on another driver's devices"


def test_the_sandbox_manages_more_drivers_as_the_chart_does(template):
    """The examples with NICs and CPUs run on what `also_managing` makes of manifests: it is what an operator gets from the chart."""
    found = by_name(template(values={"managedDrivers": [names.DRIVER, DRANET, CPUS]}))
    made = by_name(also_managing(template(values={}), DRANET, CPUS))
    assert made == found
    assert made != by_name(template(values={}))


def test_a_shared_driver_is_told_to_the_programs_that_judge_claims_and_is_outside_the_fence(template):
    found = by_name(template(values={"sharedClaimDrivers": [DRANET], "ui": {"enabled": True, "login": "token"}}))
    for program in ("controller", "webhook", "ui"):
        (container,) = found["Deployment", f"fairlead-{program}"]["spec"]["template"]["spec"]["containers"]
        assert f"--shared-claim-driver={DRANET}" in container["args"]
    assert DRANET not in str(found["ValidatingAdmissionPolicy", "fairlead-allocation-fence"])


def test_another_namespace_is_refused(refusal):
    assert 'namespace "gpu": Fairlead is installed into fairlead-system' in refusal({}, namespace="gpu")


def test_every_value_is_in_the_schema_and_the_other_way_round():
    values = quick_yaml.load((CHART / "values.yaml").read_text())
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
    assert container(job)["args"][0] == "prepare-uninstall"
