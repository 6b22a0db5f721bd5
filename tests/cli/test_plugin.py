"""`kubectl fairlead …` through the real kubectl, as its users call it: admins, users of one namespace, and strangers."""

import asyncio
import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from fairlead.api import names
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.types.reasons import Code, Holder, Reason
from fairlead.kube import resources
from fairlead.sandbox.cluster import Cluster, ClusterOptions

BIN = Path(sys.executable).parent
KUBECTL = shutil.which("kubectl", path=f"{BIN}:{os.environ.get('PATH', '')}")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        KUBECTL is None, reason="no kubectl on the path or in the virtual environment (make .venv/.tools)"
    ),
    pytest.mark.skipif(
        not (BIN / "kubectl-fairlead").exists(), reason="the plugin is not installed beside this Python"
    ),
]
REASON = Reason(
    code=Code.NO_DEVICES,
    message="12 wanted, 4 free",
    advice="it starts when enough of these devices are released together",
    holders=(Holder(gang="vision/resnet", queue="vision", devices=12),),
)
on_a_cluster = pytest.mark.asyncio(loop_scope="module")
LONG = "a-queue-with-a-name-" + "x" * 200


class User:
    """Calls kubectl with one kubeconfig: into a pipe, or on a terminal of so many columns."""

    def __init__(self, kubeconfig: Path) -> None:
        self._env = {
            **os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{BIN}:{os.environ.get('PATH', '')}", "NO_COLOR": "1",
        }  # fmt: skip

    async def call(self, *words: str) -> tuple[int, str, str]:
        command = [str(KUBECTL), "fairlead", *words]
        done = await asyncio.to_thread(
            subprocess.run, command, env=self._env, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    async def see(self, columns: int, *words: str) -> list[str]:
        """The lines on a terminal."""
        return await asyncio.to_thread(self._see, columns, words)

    def _see(self, columns: int, words: tuple[str, ...]) -> list[str]:
        ours, theirs = pty.openpty()
        env = {**self._env, "COLUMNS": str(columns), "LINES": "50"}
        with subprocess.Popen([str(KUBECTL), "fairlead", *words], env=env, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            with contextlib.suppress(OSError):  # that is how a terminal ends
                while part := os.read(ours, 65536):
                    seen += part
            process.wait(60)
        os.close(ours)
        return seen.decode().replace("\r\n", "\n").splitlines()


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path, *, install: bool = True) -> AsyncIterator[Cluster]:
    async with Cluster(ClusterOptions(workdir=tmp_path, run_programs=False, install=install)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """With two queues and a gang that waits."""
    async with cluster(tmp_path_factory.mktemp("c")) as found:
        await populate(found, ["language", "vision"])
        yield found


async def populate(made: Cluster, queues: list[str]) -> None:
    """Two namespaces, these queues, one gang that waits in the first; jane has the role `view` in its namespace."""
    async with made.client() as client:
        for name in ("language", "vision"):
            await client.create(resources.NAMESPACES, {"metadata": {"name": name}})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        jane = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "roleRef": role,
            "subjects": [jane],
        }
        await made.apply([{**binding, "metadata": {"name": "jane", "namespace": "language"}}])
        for number, name in enumerate(queues):
            spec = {"flavors": [{"flavor": "h100", "deserved": 8, "limit": 16}]}
            await client.create(resources.QUEUES, {"metadata": {"name": name}, "spec": spec})
            usage = [{"flavor": "h100", "allocated": number, "demand": 12, "fairShare": 8, "pastUsage": 0.125}]
            await client.patch(
                resources.QUEUES, name, {"status": {"running": 1, "waiting": 1, "usage": usage}}, subresource="status"
            )
        status = {
            "phase": "Waiting", "reason": "DevicesInUse", "message": str(REASON), "queue": queues[0] if queues else "",
            "members": 12, "ready": 0, "position": 1, "why": explanation(REASON),
        }  # fmt: skip
        meta = {"name": "bert", "namespace": "language"}
    async with made.client(names.CONTROLLER_USER) as client:
        await client.create(resources.GANGS, {"metadata": meta, "spec": {"size": 12}})
        await client.patch(resources.GANGS, "bert", {"status": status}, namespace="language", subresource="status")


@on_a_cluster
async def test_an_admin_reads_queues_gangs_and_one_gangs_story(made: Cluster):
    admin = User(made.kubeconfig())
    code, text, _ = await admin.call("queues")
    assert code == 0
    titles = "QUEUE     FLAVOR  USED  FAIR SHARE  DESERVED  LIMIT  ASKED   PAST  RUNNING  WAITING"
    assert text.splitlines()[0] == titles
    assert text.splitlines()[1].split() == ["language", "h100", "0", "8", "8", "16", "12", "0.125", "1", "1"]
    code, text, _ = await admin.call("gangs", "-A")
    assert (code, "DevicesInUse: 12 wanted, 4 free" in text) == (0, True)
    code, text, _ = await admin.call("explain", "bert", "-n", "language")
    assert (code, "gang vision/resnet (queue vision) holds 12" in text) == (0, True)


@on_a_cluster
async def test_programs_read_the_same_as_json_and_yaml(made: Cluster):
    admin = User(made.kubeconfig())
    for words in (("queues",), ("gangs", "-A"), ("explain", "gang/bert", "-n", "language")):
        (_, as_json, _), (_, as_yaml, _) = [await admin.call(*words, "-o", form) for form in ("json", "yaml")]
        known, same = json.loads(as_json), yaml.safe_load(as_yaml)
        for each in (*known, *same) if isinstance(known, list) else ():
            for key in ("age_s", "waited_s"):
                each.pop(key, None)  # it grows meanwhile
        for story in (known, same) if isinstance(known, dict) else ():
            story.pop("summary")  # begins with how long it waits
            story["parts"] = [part for part in story["parts"] if part["title"] != "Waited"]
        assert known == same, words
        assert "language" in as_json


@on_a_cluster
async def test_a_user_of_one_namespace_sees_its_gangs_and_all_queues(made: Cluster):
    jane = User(made.kubeconfig("jane"))
    assert (await jane.call("queues"))[0] == 0
    code, text, _ = await jane.call("gangs", "-n", "language")
    assert (code, "bert" in text) == (0, True)
    code, _, problem = await jane.call("gangs", "-A")
    assert code == 1
    assert problem == (
        "you may not list gangs.fairlead.dev in all namespaces: `kubectl auth can-i list gangs.fairlead.dev` says no; ask "
        "for a role with that verb; with -n NAMESPACE less is needed\n"
    )
    code, text, _ = await jane.call("explain", "queue/language", "-n", "language")
    assert code == 0
    assert "1. language/bert (DevicesInUse): 12 wanted, 4 free" in text
    assert "gangs of other namespaces than language: you may not list them" in text
    code, text, _ = await jane.call("explain", "language")  # in her context's namespace she may read no gang
    assert (code, text.splitlines()[0]) == (0, "queue language: 1 running, 1 waiting")


@on_a_cluster
async def test_a_name_that_does_not_exist_is_answered_with_what_is_near(made: Cluster):
    admin = User(made.kubeconfig())
    for words, said in {
        ("explain", "brt", "-n", "language"): (
            "no gang, pod or queue is called brt in namespace language; did you mean gang/bert?"
        ),
        ("explain", "queue/langage"): "no queue is called langage; did you mean queue/language?",
        ("explain", "bert"): (
            "no gang, pod or queue is called bert in namespace default, but in language: "
            "kubectl fairlead explain bert -n language"
        ),
        ("explain", "gang/zzz", "-n", "vision"): (
            "no gang is called zzz in namespace vision, nor anything like it; what there is: kubectl fairlead gangs -A"
        ),
        ("gangs", "-n", "languag"): "no namespace is called languag; did you mean language?",
    }.items():
        code, text, problem = await admin.call(*words)
        assert (code, text, problem) == (1, "", said + "\n"), words
    code, _, problem = await admin.call("gangs", "-n", "vision")
    assert code == 0
    assert problem == (
        "no gangs in namespace vision: no pod there asks for devices that Fairlead manages; all others: kubectl "
        "fairlead gangs -A\n"
    )


async def test_on_a_terminal_fifty_queues_and_endless_names_fit(tmp_path: Path):
    async with cluster(tmp_path) as made:
        await populate(made, [LONG, *(f"team-{number:02d}" for number in range(49))])
        for columns in (80, 200):
            await fits(User(made.kubeconfig()), columns)


async def fits(admin: User, columns: int) -> None:
    for words in (
        ("queues",),
        ("gangs", "-A"),
        ("explain", "bert", "-n", "language"),
        ("explain", f"queue/{LONG}"),
    ):
        lines = await admin.see(columns, *words)
        wide = [line for line in lines if len(line) > columns and LONG not in line]  # a word is never broken
        assert wide == [], words
    lines = await admin.see(columns, "queues")
    table, notes = lines[:51], " ".join(lines[51:])
    assert all(line.split()[1] in {"FLAVOR", "h100"} for line in table), table
    assert "open to every namespace that names it, for want of a namespaceSelector: " in notes
    assert lines[0].split()[:3] == ["QUEUE", "FLAVOR", "USED"]
    assert lines[0].endswith("RUNNING  WAITING")
    assert lines[1].startswith("a-queue-") and "…" in lines[1] and lines[1].endswith("1        1")
    if columns == 80:
        assert "(LIMIT, PAST: no room; a wider terminal or -o json shows more)" in lines[51:]


async def test_a_cluster_without_fairlead_and_no_cluster_say_what_to_do(tmp_path: Path):
    async with cluster(tmp_path, install=False) as made:
        admin = User(made.kubeconfig())
        for words in (("queues",), ("gangs",), ("explain", "bert")):
            code, _, problem = await admin.call(*words)
            assert code == 1
            assert "Fairlead is not installed on it; install it (docs/install.md), or name another cluster" in problem
        code, _, problem = await admin.call("queues", "--context", "nowhere")
        assert (code, problem) == (1, "the kubeconfig has no context 'nowhere'; it has fairlead-sandbox\n")
        gone = made.kubeconfig()
    code, _, problem = await User(gone).call("gangs")
    assert code == 1
    assert problem.startswith("the cluster does not answer: ")
    assert "see that it runs and that the kubeconfig's context is the one you mean" in problem
    code, _, problem = await User(tmp_path / "none").call("queues")
    assert code == 1
    assert problem == f"no cluster to ask: kubeconfig {tmp_path}/none: no such file; name one with --kubeconfig FILE, $KUBECONFIG or --context NAME\n"  # fmt: skip


async def test_an_empty_cluster_is_no_error(tmp_path: Path):
    async with cluster(tmp_path) as made:
        admin = User(made.kubeconfig())
        code, text, said = await admin.call("queues")
        assert (code, text, said.startswith("no queues: every gang waits in one line")) == (0, "", True)
        assert await admin.call("queues", "-o", "json") == (0, "[]\n", "")
        assert await admin.call("gangs", "-o", "yaml") == (0, "[]\n", "")
