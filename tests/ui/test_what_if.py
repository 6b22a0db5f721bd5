"""The page of what if: the command's answer, bounded computations, readers who leave, and what a tenant may not ask."""

import asyncio
import json
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.history.facts.snapshot_file import dump
from fairlead.ui.model.scope import EVERYTHING
from fairlead.ui.pages import render
from fairlead.ui.reading.file import FileSource
from fairlead.ui.serve import what_if
from fairlead.ui.serve.what_if import Computing, NoAnswerError, ReaderGoneError, Where
from fairlead.ui.what_if import child
from fairlead.ui.what_if.question import NAMED_MAX, QUEUES_MAX, Form, Question, named, why_not
from tests.support import ui
from tests.support.commands import invoke
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

from .markup import check

NOW = 1_000_000.0
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: tune, namespace: ml}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {fairlead.dev/gang: tune, fairlead.dev/queue: team}}
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 8}}}
"""
QUESTION = Question(add_nodes=("1xhgx-h100",))


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two nodes, each held by a gang with an hour left; one gang of two nodes waits."""
    world = h100_world(2)
    world.flavors = (FlavorSpec(name="h100", device_selector='device.driver == "gpu.fairlead.dev"'),)
    world.queues = (QueueSpec(name="team", uid="team", quotas=(FlavorQuota(flavor="h100", deserved=16),)),)
    world.now = NOW - 3600
    running = [
        gang(f"run-{n}", 1, claim_spec(device_request(8)), queue="team", run_s=7200.0, created=1.0) for n in (0, 1)
    ]
    world.carry_out(world.decide(*running), running)
    path = tmp_path / "snapshot.json"
    path.write_bytes(
        dump(world.snapshot(gang("waits", 2, claim_spec(device_request(8)), queue="team", created=NOW)), NOW)
    )
    return path


class Here(Computing):
    """Answers by the child's code in this process; one of its own takes a second to import it."""

    async def _run(self, question, gone):
        asked = json.loads(json.dumps({"where": self._where.as_json(), "question": asdict(question)}))
        found = await asyncio.to_thread(child._answer, asked)
        return what_if._read(json.dumps(found).encode(), b"", 0)


class Sent(HTMLParser):
    """What a browser sends of the page's form as it was loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[str, str]] = []
        self._name, self._several, self._text = "", False, False
        self._first: str | None = None
        self._option: str | None = None
        self._selected, self._said = False, ""
        self._chosen: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        match tag:
            case "input":
                self.pairs.append((values["name"], values.get("value", "")))
            case "select":
                self._name, self._first, self._several = values["name"], None, "multiple" in values
                self._chosen = []
            case "option":
                self._option, self._selected, self._said = values.get("value"), "selected" in values, ""
            case "textarea":
                self.pairs.append((values["name"], ""))
                self._text = True

    def handle_data(self, data):
        self._said += data
        if self._text:
            self.pairs[-1] = (self.pairs[-1][0], data)

    def handle_endtag(self, tag):
        if tag == "option":
            value = self._said if self._option is None else self._option
            self._first = value if self._first is None else self._first
            self._chosen += [value] if self._selected else []
        elif tag == "select":
            chosen = self._chosen or ([] if self._several or self._first is None else [self._first])
            self.pairs += [(self._name, value) for value in chosen]
        self._text = False


def sent_by(text: str) -> list[tuple[str, str]]:
    found = Sent()
    found.feed(text)
    return found.pairs


def served(snapshot, computing=None):
    return ui.reader(FileSource(snapshot), computing=computing or Here(Where(snapshot=snapshot)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"add-nodes": "2xhgx-h100"}, ["--add-nodes", "2xhgx-h100"]),
        (
            {"remove": "node-00001", "queue": "team.deserved=8 team.weight=2"},
            ["--remove", "node-00001", "--queue", "team.deserved=8", "--queue", "team.weight=2"],
        ),
        ({"manifests": JOB, "horizon": "90m", "samples": "4"}, ["-f", "JOB", "--horizon", "90m", "--samples", "4"]),
    ],
)
async def test_the_json_is_the_commands_and_the_page_shows_it(snapshot, tmp_path, fields, words):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    given = [str(file) if word == "JOB" else word for word in words]
    printed = invoke(["what-if", "--snapshot", str(snapshot), *given, "-o", "json"]).stdout
    alone = Computing(Where(snapshot=snapshot)) if "add-nodes" in fields else None
    async with served(snapshot, alone) as reader:
        status, _, text = await reader.post("/what-if", fields, Accept="application/json")
        assert status == 200
        assert text == printed
        status, _, text = await reader.post("/what-if", fields)
        page = check(text)
        assert status == 200
        assert "Forecast of starts:" in page.text
        table = invoke(["what-if", "--snapshot", str(snapshot), *given]).stdout
        assert table.splitlines()[0] in page.text
        kept = Form.of(sent_by(text))
        assert kept == Form.of(fields.items()), "what was asked stays in the form"


async def test_the_form_is_a_page_and_says_what_may_be_named(snapshot):
    async with served(snapshot) as reader:
        status, _, text = await reader.get("/what-if?add-nodes=4xhgx-h100")
        page = check(text)
        assert status == 200
        assert page.every("form")[1].attributes == {
            "method": "post", "action": "/what-if", "class": "rows", "aria-label": "A change",
        }  # fmt: skip
        assert [each for each in sent_by(text) if each[0].startswith("add-")] == [
            ("add-count", "4"), ("add-like", "hgx-h100"), ("add-count", "1"), ("add-like", ""),
        ]  # fmt: skip
        named = json.loads((await reader.get("/what-if?format=json"))[2])
        assert (named["queues"], named["nodes"]) == (["team"], ["node-00000", "node-00001"])
        assert "hgx-h100" in named["profiles"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "nothing is changed"),
        ({"add-nodes": "many"}, "--add-nodes many: write a number up to 10000"),
        ({"remove": "node-9"}, "node-9"),
        ({"queue": "none.deserved=3"}, "no queue is called none"),
        ({"queue": "team.deserved=much"}, "'much' is no number"),
        ({"remove": "node-00000", "samples": "65"}, "--samples 65: a number from 1 to 64"),
        ({"remove": "node-00000", "horizon": "soon"}, "--horizon"),
        ({"manifests": "{"}, "manifests: "),
        ({"manifests": "kind: Pod\nmetadata: {name: x}"}, "-f: nothing in it creates pods that ask for devices"),
        ({"remove": "x " * 1100}, "remove: more than 2000 characters"),
    ],
)
async def test_a_change_that_cannot_be_made_is_said_beside_the_form(snapshot, fields, said):
    async with served(snapshot) as reader:
        status, _, text = await reader.post("/what-if", fields)
        assert (status, said in check(text).text) == (400, True), check(text).text
        assert said in json.loads((await reader.post("/what-if", fields, Accept="application/json"))[2])["message"]


async def test_no_file_of_the_server_is_read(snapshot, tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text("secret: true")
    async with served(snapshot) as reader:
        for name in (str(profile), "/etc/passwd", "../../../../etc/passwd"):
            status, _, text = await reader.post("/what-if", {"add-nodes": f"1x{name}"})
            assert status == 400
            assert "there is no such profile: there are " in check(text).text
            assert "secret" not in text


async def test_a_question_of_another_site_is_refused(snapshot):
    async with served(snapshot) as reader:
        status, _, _ = await reader.post(
            "/what-if", {"remove": "node-00000"}, Origin="https://evil.example", Sec_Fetch_Site="cross-site"
        )
        assert status == 403
        async with reader.session.post(reader.address + "what-if", json={"remove": "node-00000"}) as answer:
            assert answer.status == 403
        own = {"Origin": reader.address.rstrip("/")}
        async with reader.session.post(reader.address + "what-if", json={"remove": "x"}, headers=own) as answer:
            assert answer.status == 415


def running(code: str, **options) -> Computing:
    return Computing(Where(), command=(sys.executable, "-c", code), **options)


SLOW = "import sys, time; sys.stdin.read(); time.sleep(60)"


async def test_what_takes_too_long_is_ended_and_said():
    slow = running(SLOW, answer_s=0.5)
    with pytest.raises(NoAnswerError, match=r"longer than 0.5 s and was ended") as caught:
        await slow.answer(QUESTION, lambda: False)
    assert caught.value.kind == "late"


async def test_a_reader_who_leaves_ends_the_process(tmp_path):
    file = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    with pytest.raises(ReaderGoneError):
        await running(code).answer(QUESTION, file.exists)
    pid = int(file.read_text())
    assert not Path(f"/proc/{pid}").exists()


async def test_one_is_answered_at_a_time_some_wait_and_more_are_refused():
    slow = running(SLOW, answer_s=30.0, turn_s=0.6)
    left = asyncio.Event()
    first = asyncio.create_task(slow.answer(QUESTION, left.is_set))
    await asyncio.sleep(0.1)
    waiting = [asyncio.create_task(slow.answer(QUESTION, lambda: False)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(NoAnswerError, match="all that wait"):
        await slow.answer(QUESTION, lambda: False)
    for each in waiting:
        with pytest.raises(NoAnswerError, match=r"no turn came within 0.6 s"):
            await each
    left.set()
    with pytest.raises(ReaderGoneError):
        await first
    done = running("import json, sys; sys.stdin.read(); print(json.dumps({'json': 1, 'shown': 2}))")
    assert await done.answer(QUESTION, lambda: False) == {"json": 1, "shown": 2}


async def test_a_viewer_has_one_question_at_a_time_and_others_have_theirs():
    quick = running("import json, sys, time; sys.stdin.read(); time.sleep(0.3); print(json.dumps({'json': 1}))")
    mine = asyncio.create_task(quick.answer(QUESTION, lambda: False, "system:serviceaccount:red:robot-1"))
    await asyncio.sleep(0)
    for user in ("system:serviceaccount:red:robot-1", "system:serviceaccount:red:robot-2"):
        with pytest.raises(NoAnswerError, match="your last question is not answered yet"):
            await quick.answer(QUESTION, lambda: False, user)
    assert await quick.answer(QUESTION, lambda: False, "alice") == {"json": 1}
    assert await mine == {"json": 1}
    assert await quick.answer(QUESTION, lambda: False, "system:serviceaccount:red:robot-2") == {"json": 1}


async def test_a_process_that_dies_is_said_with_its_last_word(caplog):
    broken = running("raise SystemExit('out of memory')")
    with pytest.raises(NoAnswerError, match=r"its process ended with 1: out of memory") as caught:
        await broken.answer(QUESTION, lambda: False)
    assert caught.value.kind == "failed"
    assert "out of memory" in caplog.text


async def test_a_cluster_that_is_away_is_said(tmp_path):
    config = tmp_path / "config"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    with pytest.raises(NoAnswerError, match="does not answer") as caught:
        await Computing(Where(kubeconfig=config)).answer(QUESTION, lambda: False)
    assert caught.value.kind == "cluster"


async def test_a_container_without_memory_begins_no_process_and_one_with_little_bounds_it():
    asked = "import json, sys; print(json.dumps({'json': json.load(sys.stdin)['memory_bytes']}))"
    with pytest.raises(NoAnswerError, match=r"100 MiB of memory are left to this server"):
        await running(asked, headroom=lambda: 100 * 2**20).answer(QUESTION, lambda: False)
    assert (await running(asked, headroom=lambda: 2**30).answer(QUESTION, lambda: False))["json"] == 2**29
    assert (await running(asked, headroom=lambda: None).answer(QUESTION, lambda: False))["json"] is None


def test_who_sees_a_part_may_not_ask():
    assert why_not(EVERYTHING) == ""
    for less in ({"namespaces": frozenset({"a"})}, {"cluster": False}, {"queues": False}):
        assert "ask for a role" in why_not(replace(EVERYTHING, **less))


def test_a_form_is_read_as_it_is_written():
    form = Form.of(
        {"add-nodes": " 2xa  3xb ", "queue": "t.deserved=1", "samples": "", "other": "x", "remove": b"odd"}.items()
    )
    asked = form.question(("d",), ("shared",))
    assert (asked.drivers, asked.shared_drivers) == (("d",), ("shared",))
    assert (list(asked.add_nodes), list(asked.queue), asked.samples, asked.horizon_s) == (["2xa", "3xb"], ["t.deserved=1"], 1, 86_400.0)  # fmt: skip
    with pytest.raises(ChangeError, match="--samples -1"):
        replace(form, samples="-1").question(("d",))


async def test_names_are_text():
    name = "<script>alert(1)</script>"
    shown = {
        "headline": name, "starts": [{"gang": f"{name}/{name}", "queue": name, "before": name, "after": name, "change": name, "better": None}],
        "more": 3, "evicted": [name], "shares": [[name] * 8], "figures": [[name, name]], "note": name,
    }  # fmt: skip
    echo = running(f"import json, sys; sys.stdin.read(); print(json.dumps({{'json': {{}}, 'shown': {shown!r}}}))")
    async with ui.reader(ui.source(ui.Apiserver(ui.a_cluster())), computing=echo) as reader:
        _, _, text = await reader.post("/what-if", {"remove": name, "manifests": "", "queue": name})
        check(text)
        assert "<script>alert" not in text


async def test_without_computing_the_page_names_the_command():
    async with ui.pages() as reader:
        status, _, text = await reader.get("/what-if")
        assert (status, "fairlead what-if" in check(text).text) == (200, True)


async def test_a_queues_numbers_are_stepped_from_what_they_are(snapshot):
    async with served(snapshot) as reader:
        _, _, text = await reader.get("/what-if")
        form = dict(sent_by(text))
        assert {name: value for name, value in form.items() if name.startswith("set:")} == {
            "set:team.h100.deserved=16": "16", "set:team.h100.limit=": "", "set:team.h100.weight=1": "1", "set:team.priority=0": "0",
        }  # fmt: skip
        status, _, answer = await reader.post("/what-if", form)
        assert (status, "nothing is changed" in check(answer).text) == (400, True), (
            "a number that is as it was is no change"
        )
        stepped = form | {"set:team.h100.deserved=16": "8", "set:team.priority=0": "3"}
        status, _, answer = await reader.post("/what-if", stepped, Accept="application/json")
        assert status == 200
        words = ["--queue", "team.h100.deserved=8", "--queue", "team.priority=3"]
        assert answer == invoke(["what-if", "--snapshot", str(snapshot), *words, "-o", "json"]).stdout
        _, _, text = await reader.post("/what-if", stepped)
        assert dict(sent_by(text)) == stepped, "to step on from there"
        assert "open" in next(each.attributes for each in check(text).every("details"))
        status, _, answer = await reader.post("/what-if", form | {"set:team.h100.deserved=16": ""})
        assert (status, "--queue team.h100.deserved=: " in check(answer).text) == (400, True)


async def test_nodes_are_picked_from_lists(snapshot):
    async with served(snapshot) as reader:
        _, _, text = await reader.get("/what-if")
        page = check(text)
        assert {each.attributes.get("type") for each in page.every("input")} <= {"number", None}
        assert [each.text for each in page.every("select") if each.attributes["name"] == "remove"] == [
            "node-00000node-00001"
        ]
        fields = [("add-count", "2"), ("add-like", "node-00001"), ("add-count", "1"), ("add-like", ""), ("remove", "node-00000"), ("remove", "node-00001")]  # fmt: skip
        form = Form.of(fields)
        assert (form.add_nodes, form.remove) == ("2xnode-00001", "node-00000 node-00001")
        status, _, text = await reader.post("/what-if", fields)
        assert status == 200
        assert Form.of(sent_by(text)) == form


def test_a_number_of_nodes_and_of_queues_beyond_the_lists_is_written(snapshot):
    facts = asyncio.run(FileSource(snapshot).facts())
    raws = tuple({"metadata": {"name": f"q{number}"}, "spec": {"flavors": [{"flavor": "h100", "deserved": "80Gi"}]}} for number in range(QUEUES_MAX + 3))  # fmt: skip
    there = named(replace(facts, queues=raws), ())
    assert list(there.numbers) == [f"q{number}" for number in range(QUEUES_MAX)]
    assert [(each.present, each.whole) for each in there.numbers["q0"]] == [("80Gi", False), ("", True), ("1", False), ("0", True)]  # fmt: skip
    form = Form(queue="q1.h100.deserved=3 q61.h100.deserved=4")
    assert there.others(form) == "q61.h100.deserved=4"
    many = replace(there, nodes=tuple(f"n{number}" for number in range(NAMED_MAX + 1)))
    shown = check(render.what_if(facts, replace(form, remove="n3"), many))
    written = {
        each.attributes["name"]: each.attributes["value"]
        for each in shown.every("input")
        if "maxlength" in each.attributes
    }
    assert (written["remove"], written["queue"], written["set:q1.h100.deserved=80Gi"]) == (
        "n3",
        "q61.h100.deserved=4",
        "3",
    )
