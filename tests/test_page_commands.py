"""Every command of README.md, docs/start.md and docs/first-tasks.md runs on the sandbox, in the order of its page.

docs/start.md on a cluster without Fairlead, on which its commands install it; the others on the demo's cluster. Commands that need what is not
here are in NOT_RUN, with the reason; the table names no command that no page has. `kubectl`, `helm` and `fairlead` are the real ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
import yaml

from fairlead.api import names
from fairlead.cli.demo.run import NODES
from fairlead.kube.resources import DEPLOYMENTS, GANGS
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.installation import bare, labelled, registered
from fairlead.sandbox.objects import name_of, spec_of
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import FAST, FAST_MANAGER, View, until

ROOT = Path(__file__).resolve().parent.parent
README, START, TASKS = "README.md", "docs/start.md", "docs/first-tasks.md"
BIN = Path(sys.executable).parent
NODE = NODES[1].name
SIMULATED = "manifests/overlays/simulated/values.yaml"
_PROGRAMS = "fairlead|kubectl|helm|make|docker|pipx|containerd|ctr|skopeo|nvidia-smi|sed|cat"
_PARTS = re.compile(r"^```(?P<kind>\w*)\n(?P<block>.*?)^```$|`(?P<inline>[^`\n]+)`", re.MULTILINE | re.DOTALL)
_LINES = re.compile(r"^[^\n]*<<'EOF'[^\n]*\n.*?^EOF$|^[^\n]+$", re.MULTILINE | re.DOTALL)

NOT_RUN: Mapping[str, str] = {
    "make demo": "tests/cli/test_demo.py runs it",
    "make demo KEEP=1": "tests/cli/test_demo.py runs it",
    "make test": "runs this",
    "make e2e": "is a suite of its own",
    "make e2e KUBECONFIG=… REQUESTS=none": "needs a real cluster",
    "make e2e-kind": "needs docker and kind",
    "make install-test": "is a suite of its own, as root",
    "make image IMAGE=registry.example.com/fairlead:0.1.0": "needs docker, podman or buildah",
    "make image-archive": "fetches packages of Debian; tests/manifests/test_image.py",
    "docker push registry.example.com/fairlead:0.1.0": "needs docker and a registry",
    "ctr -n k8s.io images import": "needs containerd",
    "skopeo copy oci-archive:": "needs skopeo and a registry",
    "containerd config dump": "needs containerd",
    "nvidia-smi": "needs a GPU",
    "make .venv/.runtime && export PATH=$PWD/.venv/bin:$PATH": "made the environment in which this runs",
    "pipx install .": "asks a registry of packages",
    "uv tool install .": "asks a registry of packages",
    "pipx install fairlead-0.1.0-py3-none-any.whl": "asks a registry of packages; tests/manifests/release/test_dist.py makes that wheel",
    "kubectl krew install --manifest fairlead.yaml --archive kubectl-fairlead-0.1.0.tar.gz": "needs krew; tests/manifests/release/test_krew.py",
    "make dist": "tests/manifests/release",
    "helm upgrade gpu-operator nvidia/gpu-operator --namespace gpu-operator --reuse-values --set devicePlugin.enabled=false --set migManager.enabled=false": "needs NVIDIA's chart",
    "fairlead --install-completion": "writes into a shell's files; tests/cli/test_completion.py",
    "fairlead driver": "runs as a pod of what is installed",
    "fairlead webhook": "runs as a pod of what is installed",
    "fairlead controller": "runs as a pod of what is installed",
    "fairlead ui": "serves until it is ended; tests/ui",
}
INSTALLED: Mapping[str, str] = dict.fromkeys(
    (
        "fairlead doctor --before-install",
        "kubectl create namespace fairlead-system",
        "kubectl label namespace fairlead-system fairlead.dev/ignore=true pod-security.kubernetes.io/enforce=privileged",
        "helm install fairlead manifests/chart --namespace fairlead-system --set image.repository=registry.example.com/fairlead",
    ),
    "is for a cluster without Fairlead: the run of docs/start.md has it",
)
WHOLE: Mapping[str, str] = {
    "fairlead cost": "fairlead cost --window 1h --ledger DIR",
    "fairlead tenant create": "fairlead tenant create other --dry-run",
    "fairlead hold": "fairlead hold queue vision && fairlead resume queue vision",
    "fairlead device drain": "fairlead device drain hgx-h100-b/gpu-0 --dry-run",
    "fairlead import --from kueue": "fairlead import --from kueue FILE",
    "kubectl apply --server-side -k manifests/base": "kubectl apply --server-side --force-conflicts -k manifests/base",
}
"""What a page names in passing, with what it takes: the sandbox applied the manifests as another manager."""
HERE = {"install": f" --values {SIMULATED}", "uninstall": " --no-hooks"}
"""What helm gets in place of --wait: no controller runs the install's Deployments and the uninstall's Job, and GPUs are simulated."""
FAILS = {"fairlead check readiness": 1, "fairlead check wrong.yaml": 1}
"""Exit codes that are meant."""


class Command(NamedTuple):
    page: str
    task: str  # first cell of its row in a table; "" elsewhere
    text: str


def commands(page: str) -> list[Command]:
    """Of shell blocks each command, of other text what is written as code and begins with a program that gets words; each once for each task."""
    found: dict[Command, None] = {}
    text = (ROOT / page).read_text()
    for part in _PARTS.finditer(text):
        row = text.rfind("\n", 0, part.start()) + 1
        task = text[row:].partition("|")[2].partition("|")[0].strip() if page == TASKS and text[row] == "|" else ""
        if part["inline"] and re.match(rf"(?:{_PROGRAMS})\s+\S|nvidia-smi$", part["inline"]):
            found[Command(page, task, part["inline"].replace("\\|", "|"))] = None
        for line in _LINES.findall(part["block"] or "") if part["kind"] == "sh" else ():
            found[Command(page, "", re.sub(r"\s+#.*$", "", line) if "<<" not in line else line)] = None
    return list(found)


def job(name: str, *, members: int = 8, gpus: int = 2, seconds: int = 600, topology: str = "") -> str:
    container = {
        "name": "worker", "image": "busybox:1.37", "command": ["sleep", str(seconds)],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }  # fmt: skip
    marks = {names.GANG: name} | ({names.TOPOLOGY: topology} if topology else {})
    template = {"metadata": {"annotations": marks}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": members, "parallelism": members, "template": template}
    return yaml.safe_dump(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "language"}, "spec": spec}
    )


def one_gpu() -> str:
    """The template of the README, and a pod with it."""
    (requests,) = re.findall(r"^```yaml\n(requests:.*?)^```$", (ROOT / README).read_text(), re.MULTILINE | re.DOTALL)
    template = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one", "namespace": "language"},
        "spec": {"spec": {"devices": yaml.safe_load(requests)}},
    }  # fmt: skip
    claim = {"name": "gpu", "resourceClaimTemplateName": "one"}
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["sleep", "5"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "language"},
        "spec": {"restartPolicy": "Never", "resourceClaims": [claim], "containers": [container]},
    }  # fmt: skip
    return yaml.safe_dump_all([template, pod])


def pod(name: str, limit: str, **annotations: str) -> str:
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["sleep", "5"],
        "resources": {"limits": {limit: 1}},
    }
    metadata = {
        "name": name,
        "namespace": "language",
        "annotations": {f"fairlead.dev/{key}": value for key, value in annotations.items()},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


WRONG = job("wrong").replace(
    f"{names.GANG}: wrong",
    f"{names.GANG}: wrong\n        fairlead.dev/gang-size: three\n        fairlead.dev/topology: rack",
)
FILES: Mapping[str, str] = {
    "Bring over Kueue's queues": (ROOT / "tests/cli/imports/samples/kueue.yaml").read_text(),
    "One GPU with at least 40Gi": one_gpu(),
    "A gang of eight pods with two GPUs each": job("large"),
    "Why does my job wait?": job("wide"),
    "Is my manifest right?": WRONG,
    "A MIG device": pod("mig", "nvidia.com/mig-1g.10gb"),
    "I misspelt the queue": pod("lost", "nvidia.com/gpu", queue="visoin"),
    "All pods of my gang in one rack": job("racked", members=2, gpus=1, topology="required:rack"),
}
"""What FILE is in each task."""


class Shell:
    """A user's shell in a folder with manifests and examples, and what was run in it."""

    view: View

    def __init__(self, folder: Path, kubeconfig: Path, **values: str) -> None:
        self.done: list[str] = []
        self.failed: list[str] = []
        self._folder = folder
        self._values = values
        self._environment = {
            **os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder), "COLUMNS": "200", "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        }  # fmt: skip
        for name in ("manifests", "examples"):
            (folder / name).symlink_to(ROOT / name)

    async def run(self, command: Command) -> str:
        text = WHOLE.get(command.text, command.text)
        if "FILE" in text:
            name = "wrong.yaml" if command.task == "Is my manifest right?" else "file.yaml"
            (self._folder / name).write_text(FILES.get(command.task, FILES["Bring over Kueue's queues"]))
            text = re.sub(r"\bFILE\b", name, text)
        for word, value in self._values.items():
            text = re.sub(rf"\b{word}\b", value, text)
        process = await asyncio.create_subprocess_exec(
            "bash", "-o", "pipefail", "-c", text,
            cwd=self._folder, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 200)
        said = out.decode()
        if process.returncode != FAILS.get(text, 0) or "Traceback" in said:
            self.failed.append(f"{command.page}: {text}: exit code {process.returncode}\n{said}")
        self.done.append(command.text)
        return said


def test_what_is_not_run_is_in_a_page() -> None:
    written = {each.text for page in (README, START, TASKS) for each in commands(page)}
    assert len(written) > 70
    assert {*NOT_RUN, *INSTALLED, *WHOLE} - written == set()
    assert set(FILES) <= {each.task for each in commands(TASKS)}


def options(folder: Path, **more: object) -> ClusterOptions:
    return ClusterOptions(
        workdir=folder, nodes=NODES, times=FAST, manager=FAST_MANAGER, scheduler_backoff_s=(0.1, 1.0), release=of_this_run(), **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_docs_start_leads_from_a_cluster_without_fairlead_to_the_first_gang_and_back(tmp_path: Path) -> None:
    chosen = options(tmp_path / "c")
    async with bare(ClusterOptions(**{**vars(chosen), "nodes": labelled(NODES[:2])})) as site:
        shell = Shell(tmp_path, site.kubeconfig(), NODE=NODE)
        for each in commands(START):
            text = each.text
            if text in NOT_RUN:
                continue
            following = None
            if text.startswith("fairlead prepare-uninstall"):
                following = asyncio.create_task(controllers_stop(site))
            elif text == "fairlead gangs -n default":
                await until(lambda: gang_is_there(site), what="the controller has made the gang")
            said = await shell.run(each._replace(text=re.sub(" --wait$", HERE.get(text.split()[1], ""), text)))
            if following is not None:
                await following
            if text.startswith("helm install"):
                await site.workloads.start()
                await registered(site)
            elif text.startswith("helm uninstall"):
                await site.workloads.stop()
            elif text == "fairlead gangs -n default":
                assert "train" in said
            elif text.startswith("fairlead doctor --before"):
                assert "NoNamespace (a note)" in said
    assert shell.failed == [], "\n".join(shell.failed)
    assert len(shell.done) > 25


async def gang_is_there(site: Cluster) -> bool:
    return any(name_of(gang) == "train" for gang in (await site.admin.list(GANGS, "default")).items)


async def controllers_stop(site: Cluster) -> None:
    """As the Deployment controller does where the controller is scaled to 0."""

    async def scaled() -> bool:
        found = await site.admin.get(DEPLOYMENTS, names.CONTROLLER_ACCOUNT, names.NAMESPACE)
        return bool(spec_of(found)["replicas"] == 0)

    await until(scaled, what="the controller is scaled to 0", timeout_s=60.0)
    for name in [name for name, each in site.workloads.running.items() if each.workload == names.CONTROLLER_ACCOUNT]:
        await site.workloads.stop_pod(name)


@pytest_asyncio.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Shell]:
    """The demo's cluster, on which two of its examples ran, and one of them still does."""
    ledger = tmp_path / "ledger"
    async with Cluster(options(tmp_path / "c", flags={"controller": (f"--ledger={ledger}",)})) as made:
        shell = Shell(tmp_path, made.kubeconfig(), DIR=str(ledger))
        for text in (
            "kubectl apply -f examples/00-queues",
            "kubectl apply -f examples/07-reclaim",
            """sed 's/"5"/"600"/' examples/03-two-gangs/jobs.yaml | kubectl apply -f -""",
        ):
            await shell.run(Command("", "", text))
        shell.view = View(made.admin)
        await shell.view.gang("bert", "Waiting", "Admitted", "Running", namespace="language", timeout_s=60.0)

        async def billed() -> bool:
            await shell.run(Command("", "", "fairlead cost --window 1h --ledger DIR"))
            failed, shell.failed = shell.failed, []
            return not failed

        await until(billed, what="the ledger holds something", timeout_s=60.0)
        shell.done.clear()
        yield shell


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_the_readme_and_the_first_tasks_run_on_the_demos_cluster_as_written(demo: Shell) -> None:
    for each in commands(README):
        if each.text not in {**NOT_RUN, **INSTALLED}:
            await demo.run(each)
    await demo.run(Command(README, "", "kubectl delete -f examples/03-two-gangs"))
    for each in commands(TASKS):
        if each.text not in NOT_RUN:
            if each.text == "fairlead explain wide -n language":
                await demo.view.gang("wide", "Waiting", namespace="language", timeout_s=60.0)
            await demo.run(each)
    await demo.view.gang("racked", "Running", "Finished", namespace="language", timeout_s=60.0)
    assert demo.failed == [], "\n".join(demo.failed)
    assert len(demo.done) > 45
