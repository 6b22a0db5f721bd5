"""The shipped install, run as it is written: the Dockerfile's image, each program with its manifest's rights and volumes.

What a cluster would do to a container is done to each: a read-only root, its user, dropped capabilities, no new privileges,
only its volumes, its memory limit, a network of its own, kubelet's probes. See tests/support/install for what is left out.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.resources import MUTATING_WEBHOOKS, PODS, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import NodeSpec
from fairlead.sandbox.install import manifests
from fairlead.sandbox.installation import PROFILE
from fairlead.sandbox.objects import name_of, phase_of
from tests.support.install import image as images
from tests.support.install import namespaces
from tests.support.install.image import BuildError, Image
from tests.support.install.site import Objects, Site, alone, installed
from tests.support.sandbox import until

from .conftest import JOB, QUEUE, issued

pytestmark = [pytest.mark.install, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BASE = manifests.load(files.find("manifests/base"))
OVERLAYS = sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())
WORKLOADS = ("Deployment", "DaemonSet", "Job")
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}


@pytest.fixture(scope="module")
def image() -> Image:
    if refusal := namespaces.refusal():
        pytest.skip(f"containers cannot be run here: {refusal}")
    cache = Path(sys.prefix) / ".image"
    cache.mkdir(exist_ok=True)
    try:
        return images.build(ROOT, cache)
    except BuildError as error:
        if "ound" in str(error) and "pip install --require-hashes" in str(error):
            pytest.skip(f"the image's packages cannot be had here: {error}")
        raise


@pytest.fixture(scope="module")
def nvidia_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host's root with NVIDIA's library on it, as far as it takes to find no GPU."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: NVIDIA's library cannot be stood in for")
    root = tmp_path_factory.mktemp("host")
    library = root / "usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    source = root / "nvml.c"
    source.write_text(
        "int nvmlInitWithFlags(unsigned flags) { return 0; }\n"
        "int nvmlShutdown(void) { return 0; }\n"
        "int nvmlDeviceGetCount_v2(unsigned *count) { *count = 0; return 0; }\n"
        'int nvmlSystemGetDriverVersion(char *text, unsigned size) { __builtin_strcpy(text, "580.1"); return 0; }\n'
    )
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(source)], check=True
    )
    return root


def real(
    image: Image,
    objects: Objects,
    workdir: Path,
    nvidia_root: Path,
    *,
    driver_root: str = "/",
    moved: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[Site]:
    """Installed on one node with a GPU's label, whose `driver_root` is `nvidia_root`."""
    node = NodeSpec("gpu", labels={"nvidia.com/gpu.present": "true"}, moved=moved or {})
    host_paths = {driver_root: nvidia_root, "/dev": Path("/dev")}
    return installed(image, objects, workdir=workdir, nodes=(node,), host_paths=host_paths)


def templates(objects: Objects) -> dict[str, Any]:
    """What of the objects decides how programs run."""
    return {f"{each['kind']} {name_of(dict(each))}": each["spec"] for each in objects if each["kind"] in WORKLOADS}


async def checked(site: Site) -> None:
    """Every program answers its probes, serves its purpose, keeps below its limit and ends when it is told to."""
    await site.probed()
    assert {each.name: each.probing.verdict for each in site.containers.started if each.probing} == {
        each.name: "" for each in site.containers.started
    }
    for each in site.containers.started:
        if each.memory is not None:
            assert each.memory.peak_bytes < each.memory.bytes * 0.75, each.name
    started = list(site.containers.started)
    await site.workloads.stop()
    assert {each.name: each.status for each in started} == dict.fromkeys((each.name for each in started), 0)
    for each in started:
        text = each.log.read_text()
        assert "Traceback" not in text, text
        assert '"level":"ERROR"' not in text, text


async def a_gang_runs(site: Site) -> None:
    """Through the webhook, the controller and the drivers."""
    assert await site.cluster.admin.list(MUTATING_WEBHOOKS)
    await site.cluster.apply([QUEUE, JOB])

    async def running() -> bool:
        pods = (await site.cluster.admin.list(raw(PODS), "default")).items
        return [phase_of(pod) for pod in pods] == ["Running", "Running"]

    await until(running, what="the gang runs")


async def test_the_simulated_overlay_runs_a_gang(image: Image, short_path: Path) -> None:
    nodes = (NodeSpec("left", labels={PROFILE: "hgx-h100"}), NodeSpec("right", labels={PROFILE: "l40s"}))
    objects = manifests.load(files.find("manifests/overlays/simulated"))
    async with installed(image, objects, workdir=short_path, nodes=nodes) as site:
        assert {name: len(each) for name, each in site.running.items()} == {
            "fairlead-webhook": 2,
            "fairlead-controller": 2,
            "fairlead-driver-hgx-h100": 1,
            "fairlead-driver-l40s": 1,
        }
        await a_gang_runs(site)
        await checked(site)


@pytest.mark.parametrize("overlay", [each for each in OVERLAYS if each != "simulated"])
async def test_other_overlays_run(image: Image, nvidia_root: Path, short_path: Path, overlay: str) -> None:
    objects = manifests.load(files.find(f"manifests/overlays/{overlay}"))
    if templates(objects) == templates(BASE):
        pytest.skip("its programs are those of manifests/base, which another test runs")
    async with real(image, [*objects, issued()], short_path, nvidia_root) as site:
        await checked(site)


async def test_base_runs(image: Image, nvidia_root: Path, short_path: Path) -> None:
    """On a node with NVIDIA's library and no GPU."""
    async with real(image, BASE, short_path, nvidia_root) as site:
        assert {name: len(each) for name, each in site.running.items()} == {
            "fairlead-webhook": 2,
            "fairlead-controller": 2,
            "fairlead-driver": 1,
        }
        await checked(site)


MOVED = {
    "driver": {
        "kubeletDir": "/data/kubelet",
        "cdiDir": "/data/cdi",
        "maxSurge": 0,
        "dcgmMetrics": True,
        "nodeLabels": {"enabled": True},
    }
}
CHANGED_MOUNTS: dict[str, dict[str, Any]] = {
    "directories of a kubelet elsewhere, no surge, MIG on demand": {
        **MOVED,
        "webhook": {"port": 8443, "metricsPort": 9090},
        "controller": {"metricsPort": 9090},
        "pools": [{"backend": "simulated:hgx-h100", "dynamicMig": True}],
    },
    "a driver container, shared GPUs, no host PIDs": {
        "driver": {"driverRoot": "/run/nvidia/driver", "hostPID": False},
        "pools": [{"backend": "nvml", "sharedGpus": True, "affinity": {}}],
    },
}


@pytest.mark.parametrize("case", CHANGED_MOUNTS)
async def test_a_chart_whose_values_change_mounts_runs(
    image: Image, nvidia_root: Path, short_path: Path, template: Callable[..., Any], case: str
) -> None:
    values = copy.deepcopy(CHANGED_MOUNTS[case])
    (pool,) = values.pop("pools")
    values["driver"]["pools"] = [{"name": "", "nodeSelector": {"nvidia.com/gpu.present": "true"}} | pool]
    moved = {
        "/data/kubelet/plugins": "/var/lib/kubelet/plugins",
        "/data/kubelet/plugins_registry": "/var/lib/kubelet/plugins_registry",
        "/data/cdi": "/var/run/cdi",
    }
    objects = [NAMESPACE, *template(values=values)]
    root = values["driver"].get("driverRoot", "/")
    async with real(image, objects, short_path, nvidia_root, driver_root=root, moved=moved) as site:
        assert {name: len(each) for name, each in site.running.items()} == {
            "fairlead-webhook": 2,
            "fairlead-controller": 2,
            "fairlead-driver": 1,
        }
        await checked(site)


async def test_the_job_before_an_uninstall_ends_well(
    image: Image, nvidia_root: Path, short_path: Path, template: Callable[..., Any]
) -> None:
    hooks = [each for each in template(hooks=True) if "helm.sh/hook" in (each["metadata"].get("annotations") or {})]
    (job,) = (each for each in hooks if each["kind"] == "Job")
    crds = [each for each in template() if each["kind"] == "CustomResourceDefinition"]
    async with real(
        image, [NAMESPACE, *crds, *(each for each in hooks if each is not job)], short_path, nvidia_root
    ) as site:
        ended = await alone(site, job)
        assert ended.status == 0, ended.log.read_text()


async def test_a_container_has_what_its_manifest_gives_it_and_no_more(
    image: Image, nvidia_root: Path, short_path: Path
) -> None:
    """The judge is judged: without this, a container that may write everywhere would pass all the others."""
    (webhook,) = (spec for name, spec in templates(BASE).items() if name == "Deployment fairlead-webhook")
    spec = copy.deepcopy(webhook["template"])
    (container,) = spec["spec"]["containers"]
    spec["spec"]["automountServiceAccountToken"] = True
    container["command"] = ["/bin/sh", "-c", PROBE]
    container.pop("args")
    job = {"metadata": {"name": "probe"}, "spec": {"template": spec}}
    async with real(image, BASE[:0], short_path, nvidia_root) as site:
        await site.cluster.apply([each for each in BASE if each["kind"] in {"Namespace", "ServiceAccount"}])
        ended = await alone(site, job)
    found = dict(line.split(maxsplit=1) for line in ended.log.read_text().splitlines())
    assert found == {
        "user": "65532:65532:65532",
        "Groups:": "65532",
        "CapInh:": "0000000000000000",
        "CapPrm:": "0000000000000000",
        "CapEff:": "0000000000000000",
        "CapBnd:": "0000000000000000",
        "CapAmb:": "0000000000000000",
        "NoNewPrivs:": "1",
        "pid": "1",
        "writable": "/dev/shm",
        "token": "readable",
    }


PROBE = """
echo user $(id -u):$(id -g):$(id -G)
grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status | sed 's/[[:space:]]*$//'
echo pid $$
for place in / /tmp /var/tmp /usr/tmp /root /run /opt/fairlead /etc /var/run/secrets/kubernetes.io/serviceaccount /dev/shm; do
  if touch $place/x 2>/dev/null; then echo writable $place; fi
done
test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token readable
"""


def test_no_program_compiles_anything_when_it_starts(image: Image, tmp_path: Path) -> None:
    """The base image has no bytecode of Python's own library, and a read-only root keeps none."""
    root = tmp_path / "root"
    root.mkdir()
    lines = [namespaces.Root(layers=image.layers, path=root).script()]
    lines += [namespaces.bind(each, f"{root}{each}", read_only=True) for each in image.binds]
    code = "import fairlead.driver.app, fairlead.webhook.app, fairlead.controller.app, fairlead.cli.main"
    lines.append(
        namespaces.in_root(root, image.stage.environment.items(), ["/opt/fairlead/bin/python", "-v", "-c", code])
    )
    command = namespaces.unshared("\n".join(lines), new=("--mount", "--pid"))
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stderr
    assert "/opt/fairlead/compiled/" in said
    compiled = [line for line in said.splitlines() if line.startswith("# code object from") and ".pyc" not in line]
    assert compiled == []
