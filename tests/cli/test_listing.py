"""What every list does, on the sandbox: names, labels, watches and the forms of -o, for gangs, queues, nodes, flavors, tenants and drained GPUs alike."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from typer.testing import Result

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.labels import SelectorError, parse
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.support.commands import invoke

on_a_cluster = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three queues, of which one is below another; gangs in two namespaces, whose pods have labels; two tenants."""
    options = ClusterOptions(workdir=tmp_path_factory.mktemp("c"), run_programs=False)
    async with Cluster(options) as found:
        async with found.client() as client:
            for name in ("language", "vision"):
                labels = {names.TENANT: name, names.QUEUE: name, "area": "research"}
                await client.create(resources.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
                await queue(found, name, labels={"team": name}, parent="research" if name == "vision" else None)
            await queue(found, "research", labels={})
            h100 = {"driver": "gpu.fairlead.dev", "measure": "Capacity", "capacityName": "memory"}
            cores = {"measure": "Resource", "resourceName": "cpu", "nodeSelector": {"pool": "gpu"}}
            for name, labels, spec in (("h100", {"kind": "gpu"}, h100), ("cores", {}, cores)):
                await client.create(resources.FLAVORS, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        await gang(found, "bert", nodes=["a", "b", "c"])
        await gang(found, "gpt", phase="Running")
        await gang(found, "resnet", namespace="vision")
        yield found


async def queue(made: Cluster, name: str, *, labels: dict[str, str], parent: str | None = None) -> None:
    spec = {"flavors": [{"flavor": each, "deserved": 8} for each in ("a100", "h100")]} | (
        {"parent": parent} if parent else {}
    )
    async with made.client() as client:
        await client.create(resources.QUEUES, {"metadata": {"name": name, "labels": labels}, "spec": spec})


async def gang(
    made: Cluster, name: str, *, namespace: str = "language", phase: str = "Waiting", nodes: list[str] | None = None
) -> None:
    async with made.client(names.CONTROLLER_USER) as client:
        meta = {"name": name, "namespace": namespace}
        await client.create(resources.GANGS, {"metadata": meta, "spec": {"size": 2}})
        status = {
            "phase": phase,
            "reason": "DevicesInUse",
            "message": "12 wanted",
            "queue": namespace,
            "nodes": nodes or [],
            "position": 1,
        }
        await client.patch(resources.GANGS, name, {"status": status}, namespace=namespace, subresource="status")
    async with made.client() as client:
        spec = {"containers": [{"name": "main", "image": "busybox:1.37"}]}
        labels = {"app": name, "team": namespace}
        pod = {
            "metadata": {**meta, "name": f"{name}-0", "labels": labels, "annotations": {names.GANG: name}},
            "spec": spec,
        }
        await client.create(resources.raw(resources.PODS), pod, namespace)


async def call(made: Cluster, *words: str, user: str = "admin") -> Result:
    given = [*words, "--kubeconfig", str(made.kubeconfig(user))]
    return await asyncio.to_thread(invoke, given, env={"COLUMNS": "80"})


def column(done: Result, number: int = 0) -> list[str]:
    assert done.exit_code == 0, done.output
    return [line.split()[number] for line in done.stdout.splitlines()]


@on_a_cluster
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("gangs", "-n", "language"), ["gang.fairlead.dev/bert", "gang.fairlead.dev/gpt"]),
        (("gangs", "-A", "resnet", "bert"), ["gang.fairlead.dev/bert", "gang.fairlead.dev/resnet"]),
        (("gangs", "-A", "-l", "team=vision"), ["gang.fairlead.dev/resnet"]),
        (("gangs", "-A", "-l", "team,app notin (gpt,resnet)"), ["gang.fairlead.dev/bert"]),
        (("gangs", "-A", "gpt", "--selector", "app!=gpt"), []),
        (("queues",), ["queue.fairlead.dev/language", "queue.fairlead.dev/research", "queue.fairlead.dev/vision"]),
        (("queues", "vision"), ["queue.fairlead.dev/vision"]),
        (("queues", "-l", "!team"), ["queue.fairlead.dev/research"]),
        (("tenant", "list"), ["namespace/language", "namespace/vision"]),
        (("tenant", "list", "vision", "-l", "area=research"), ["namespace/vision"]),
        (("device", "list"), []),
        (("flavors",), ["flavor.fairlead.dev/cores", "flavor.fairlead.dev/h100"]),
        (("flavors", "-l", "kind=gpu"), ["flavor.fairlead.dev/h100"]),
        (("nodes",), []),
    ],
)  # fmt: skip
async def test_names_and_labels_choose(words: tuple[str, ...], shown: list[str], made: Cluster) -> None:
    assert column(await call(made, *words, "-o", "name")) == shown


@on_a_cluster
async def test_a_queue_that_was_asked_for_has_all_its_flavors_and_no_place_in_a_tree(made: Cluster) -> None:
    tree = (await call(made, "queues")).stdout.splitlines()
    assert [line.split()[0] for line in tree if line.startswith("  vision")] == ["vision"]
    one = (await call(made, "queues", "vision")).stdout.splitlines()
    assert [line.split()[:2] for line in one[1:3]] == [["vision", "a100"], ["h100", "0"]]
    assert one[1].startswith("vision")


@on_a_cluster
async def test_flavors_say_what_they_count(made: Cluster) -> None:
    async with made.client(names.CONTROLLER_USER) as client:
        status = {"total": "640Gi", "allocated": 0, "devices": 8}
        await client.patch(resources.FLAVORS, "h100", {"status": status}, subresource="status")
    shown = (await call(made, "flavors", "-o", "wide")).stdout.splitlines()
    assert [line.split(maxsplit=4) for line in shown] == [
        ["FLAVOR", "MEASURE", "ALLOCATED", "TOTAL", "COUNTS"],
        ["cores", "Resource", "-", "-", "cpu on nodes with pool=gpu"],
        ["h100", "Capacity", "0", "640Gi", "memory of gpu.fairlead.dev"],
    ]


@on_a_cluster
async def test_wide_shows_in_full_what_the_table_shortens(made: Cluster) -> None:
    assert "a,b +1" in (await call(made, "gangs", "-n", "language")).stdout
    assert "a,b,c" in (await call(made, "gangs", "-n", "language", "-o", "wide")).stdout


@on_a_cluster
async def test_custom_columns_lead_through_what_json_prints(made: Cluster) -> None:
    form = "custom-columns=GANG:.name,FIRST:.nodes[0],ALL:{.nodes[*]},WHY:reason,POS:.position,NONE:.nodes[7]"
    done = await call(made, "gangs", "-n", "language", "-o", form)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["GANG", "FIRST", "ALL", "WHY", "POS", "NONE"],
        ["bert", "a", "a,b,c", "DevicesInUse", "1", "<none>"],
        ["gpt", "<none>", "<none>", "DevicesInUse", "1", "<none>"],
    ]
    done = await call(made, "queues", "research", "-o", "custom-columns=Q:.name,DESERVED:.shares[*].deserved")
    assert done.stdout.splitlines()[1].split() == ["research", "8,8"]
    listed = json.loads((await call(made, "gangs", "-A", "gpt", "-o", "json")).stdout)
    assert [each["name"] for each in listed] == ["gpt"]
    assert [each["name"] for each in yaml.safe_load((await call(made, "gangs", "-A", "gpt", "-o", "yaml")).stdout)] == [
        "gpt"
    ]


@on_a_cluster
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-o", "csv"), 2, "'csv' is none of table, wide, name, json, yaml, custom-columns=HEADER:PATH,…"),
        (("-o", "custom-columns=NAME"), 2, "'NAME' is no HEADER:PATH: write custom-columns=NAME:.name,NODE:.nodes[0]"),
        (("-o", "custom-columns=A:.name[x]"), 2, "is no HEADER:PATH"),
        (("-o", "custom-columns=NODES:.node"), 2, "NODES: there is no field 'node'; there are age_s, "),
        (("-l", "a=b=c"), 2, "'a=b=c' is no requirement of labels: write a=b, a!=b, a in (b,c)"),
        (("-l", "a in (b"), 2, "is no requirement of labels"),
        (("brt",), 1, "no gang is called brt in namespace language; did you mean bert?"),
        (("brt", "gpt"), 1, "no gang is called brt in namespace language; did you mean bert?"),
        (("-l", "app=none"), 0, "no gang has these labels"),
    ],
)
async def test_what_is_wrong_is_named_with_what_to_write(
    words: tuple[str, ...], code: int, said: str, made: Cluster
) -> None:
    done = await asyncio.to_thread(
        invoke, ["gangs", "-n", "language", *words, "--kubeconfig", str(made.kubeconfig())], env={"COLUMNS": "400"}
    )
    assert (done.exit_code, said in done.stderr) == (code, True), done.output
    assert ("gpt" in done.stdout) == ("gpt" in words)


class Watching:
    """A `fairlead … -w` of its own process, into a pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> list[str]:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 30)).decode().split()

    async def end(self) -> tuple[int, bytes]:
        self._process.send_signal(signal.SIGINT)
        return await self.ended()

    async def ended(self) -> tuple[int, bytes]:
        """The exit code, and what was said on standard error."""
        _, said = await asyncio.wait_for(self._process.communicate(), 30)
        assert self._process.returncode is not None
        return self._process.returncode, said


STARTED: list[asyncio.subprocess.Process] = []


@pytest.fixture(autouse=True)
def no_watch_is_left() -> Iterator[None]:
    yield
    while STARTED:
        with suppress(ProcessLookupError):
            STARTED.pop().kill()


async def watch(made: Cluster, *words: str, user: str = "admin") -> Watching:
    environment = {**os.environ, "KUBECONFIG": str(made.kubeconfig(user))}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", *words, "-w", env=environment, stdout=pipe, stderr=pipe
    )
    STARTED.append(process)
    return Watching(process)


@on_a_cluster
async def test_a_watch_shows_what_there_is_and_then_only_what_changed(made: Cluster) -> None:
    seen = await watch(made, "gangs", "-n", "vision")
    assert (await seen.line())[:2] == ["GANG", "PHASE"]
    assert (await seen.line())[:2] == ["resnet", "Waiting"]
    await gang(made, "vit", namespace="vision")
    while (line := await seen.line())[:2] != ["vit", "Waiting"]:
        assert line[0] == "vit"  # seen before its status was written
    async with made.client(names.CONTROLLER_USER) as client:
        await client.patch(
            resources.GANGS, "resnet", {"status": {"phase": "Running"}}, namespace="vision", subresource="status"
        )
    assert (await seen.line())[:2] == ["resnet", "Running"]
    assert await seen.end() == (130, b"")


@on_a_cluster
async def test_a_watch_prints_one_document_an_object_and_keeps_to_names(made: Cluster) -> None:
    seen = await watch(made, "queues", "vision", "-o", "custom-columns=N:.name,W:.waiting")
    assert [await seen.line(), await seen.line()] == [["N", "W"], ["vision", "0"]]
    async with made.client() as client:
        for name, waiting in (("language", 3), ("vision", 4)):
            await client.patch(resources.QUEUES, name, {"status": {"waiting": waiting}}, subresource="status")
    assert await seen.line() == ["vision", "4"]
    assert (await seen.end())[0] == 130


@on_a_cluster
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["visoin"], 1, "no queue is called visoin; did you mean vision?"),
        (["-o", "custom-columns=N:.nmae"], 2, "N: there is no field 'nmae'"),
    ],
)
async def test_a_watch_that_cannot_begin_ends_with_what_is_wrong(
    made: Cluster, words: list[str], code: int, said: str
) -> None:
    ended, message = await (await watch(made, "queues", *words)).ended()
    text = " ".join(message.decode().split())
    assert (ended, said in text, "Traceback" in text) == (code, True, False), text


@pytest.mark.slow
async def test_a_watch_outlives_an_apiserver_that_is_away_and_says_so(tmp_path: Path) -> None:
    async with Cluster(ClusterOptions(workdir=tmp_path, run_programs=False)) as made:
        await queue(made, "only", labels={})
        seen = await watch(made, "queues")
        await seen.line()
        assert (await seen.line())[0] == "only"
    code, said = await seen.end()
    assert code == 130
    assert said == b"" or said.startswith(b"the cluster does not answer: ")


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("a=b,c!=d", {"a": "b"}, {"a": "b", "c": "d"}),
        ("a == b", {"a": "b"}, {}),
        ("x/y in (1, 2),!z", {"x/y": "2"}, {"x/y": "2", "z": ""}),
        ("a notin (b)", {}, {"a": "b"}),
        ("a", {"a": ""}, {"b": ""}),
        ("a=", {"a": ""}, {"a": "b"}),
        ("", {}, None),
    ],
)  # fmt: skip
def test_selectors_are_read_as_kubectl_reads_them(text: str, yes: dict[str, str], no: Any) -> None:
    assert parse(text).matches(yes)
    assert no is None or not parse(text).matches(no)


@pytest.mark.parametrize("text", ["a=b,", ",", "=b", "a in b", "a in (b,c))", "a in (b c)", "!a=b", "a b", "a=(b)"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse(text)
