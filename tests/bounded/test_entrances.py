"""Every bomb at every entrance: refused within a second of CPU and 100 MiB, with a message that names the limit.

Each is measured in a child of its own (`apart`); the form of what-if, as the process that the pages start.
"""

import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.bounded import files
from fairlead.bounded.limits import SMALL
from fairlead.cli.cost import reading as cost_reading
from fairlead.driver.backend.profiles import loading
from fairlead.driver.layouts import config as layouts
from fairlead.history.ledger.store.writer import open_writer
from fairlead.history.recording import records
from fairlead.kube.credentials import TokenFile
from fairlead.ui.reading import manifests
from tests.support import apart, cpu
from tests.support.commands import invoke

MIB = 2**20
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
TEXTS: dict[str, tuple[Callable[[], str], str]] = {
    "aliases": (lambda: LAUGHS, "holds more than"),
    "long scalar, many aliases": (lambda: f"a: &a {'x' * 50_000}\nb: [{'*a,' * 10_000}]\n", "aliases written out"),
    "depth": (lambda: "[" * 100_000, "nested more than 64 levels deep"),
    "depth of blocks": (lambda: "- " * 100_000, "nested more than 64 levels deep"),
    "depth of JSON": (lambda: '{"a":' * 10_000 + "1" + "}" * 10_000, "nested more than 64 levels deep"),
    "values": (lambda: "- a\n" * 4_000_000, "holds more than"),
    "values of JSON": (lambda: '{"a":[' + "[]," * 5_000_000 + "[]]}", "holds more than"),
    "documents": (lambda: "---\n" * 4_000_000, "holds more than"),
    "number": (lambda: f"a: {'9' * 400_000}", "a number has 400000 characters"),
    "sexagesimal number": (lambda: f"a: 1{':1' * 100_000}", "a number has 200001 characters"),
    "number of JSON": (lambda: f'{{"a": {"9" * 400_000}}}', "a number has 400000 characters"),
    "key": (lambda: f"? {'k' * 3_000}\n: v", "a key has 3000 characters"),
    "key of JSON": (lambda: f'{{"{"k" * 3_000}": 1}}', "a key has 3000 characters"),
    "keys of one hash": (lambda: "".join(f"{k * (2**61 - 1)}: 1\n" for k in range(10, 20_000)), "a key is a number"),
    "merge keys": (lambda: "a: &a {x: 1}\nb:\n" + "  <<: *a\n" * 20_000, "merge keys"),
    "long line": (lambda: "x" * (17 * MIB), "is longer than"),
}
ALSO = "holds more than|is longer than"
"""Settings may hold less than manifests, so another limit may come first."""
Words = Callable[[Path], list[str]]
TEXT_ENTRANCES: dict[str, Words] = {
    "check": lambda file: ["check", str(file)],
    "check --policies": lambda file: ["check", str(file.with_name("good.yaml")), "--policies", str(file)],
    "check cel": lambda file: ["check", "cel", "true", "--device", str(file)],
    "import": lambda file: ["import", "--from", "kueue", str(file)],
    "what-if -f": lambda file: ["what-if", "--snapshot", str(file), "-f", str(file)],
    "tenant create": lambda file: ["tenant", "create", "-f", str(file)],
    "kubeconfig": lambda file: ["gangs", "--kubeconfig", str(file)],
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a bomb; and each command was called once, so that no test counts what is imported."""
    made = tmp_path_factory.mktemp("texts")
    (made / "good.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    (made / "first.yaml").write_text("[")
    for words in TEXT_ENTRANCES.values():
        invoke(words(made / "first.yaml"))

    def written(bomb: str) -> Path:
        if not (file := made / f"{bomb}.yaml").exists():
            file.write_text(TEXTS[bomb][0]())
        return file

    return written


def refused(words: Sequence[str], said: str) -> None:
    def work() -> tuple[int, str]:
        done = invoke(words)
        return done.exit_code, done.output

    (code, output), cpu_s, peak_bytes = apart.spent(work)
    assert code in {1, 2}, output
    assert "Traceback" not in output
    assert re.search(said, " ".join(output.replace("│", " ").split())), output[-500:]
    assert len(output) < 2_000
    assert cpu_s <= 1.0
    assert peak_bytes <= 100 * MIB, f"{peak_bytes // MIB} MiB"


@pytest.mark.one_in(9)
@pytest.mark.parametrize("bomb", TEXTS)
@pytest.mark.parametrize("entrance", TEXT_ENTRANCES)
def test_every_entrance_refuses_every_text(entrance: str, bomb: str, written: Callable[[str], Path]) -> None:
    refused(TEXT_ENTRANCES[entrance](written(bomb)), f"{TEXTS[bomb][1]}|{ALSO}")


ANSWERING = """
import sys, time
from pathlib import Path
from fairlead.ui.what_if.child import main
main()
lines = Path("/proc/self/status").read_text().splitlines()
print(time.process_time(), next(line.split()[1] for line in lines if line.startswith("VmHWM:")), file=sys.stderr)
"""


@pytest.mark.one_in(5)
@pytest.mark.parametrize("bomb", TEXTS)
def test_the_form_of_what_if_refuses_every_text(bomb: str, tmp_path: Path) -> None:
    """All of a process is counted: Python, too."""
    made, said = TEXTS[bomb]
    text = made()
    asked = {"where": {}, "question": {"manifests": text}}
    (tmp_path / "asked").write_text(json.dumps(asked))
    with (tmp_path / "asked").open() as question:
        done = subprocess.run(
            [sys.executable, "-c", ANSWERING], stdin=question, capture_output=True, text=True, check=True
        )
    answer, (cpu_s, peak_kib) = json.loads(done.stdout), map(float, done.stderr.split())
    assert answer["kind"] == "change"
    assert re.search(f"{said}|{ALSO}", answer["error"])
    assert cpu_s <= 3.0, "on a busy machine"
    assert peak_kib * 1024 - 2 * len(text) <= 100 * MIB, "the server reads forms of 64 KiB"


READERS: dict[str, Callable[[Path], object]] = {
    "cost --flavors": cost_reading.of_file,
    "profile of a simulated node": lambda file: loading.load(str(file)),
    "MIG layouts": lambda file: layouts.parse(file.read_bytes(), path=str(file)),
    "form of what-if": lambda file: list(manifests.documents(file.read_text(), "manifests", SMALL)),
}


def raised(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.one_in(9)
@pytest.mark.parametrize("bomb", TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_settings_refuses_every_text(reader: str, bomb: str, written: Callable[[str], Path]) -> None:
    file = written(bomb)
    said, cpu_s, peak_bytes = apart.spent(lambda: raised(lambda: READERS[reader](file)))
    assert re.search(f"{TEXTS[bomb][1]}|more than 16 levels|{ALSO}", said)
    assert cpu_s <= 1.0
    assert peak_bytes <= 100 * MIB


def record(text: bytes) -> bytes:
    return b'{"chain":"%b","record":%b}\n' % (records.link(records.CHAIN_START, text).encode(), text)


HEADER = record(b'{"kind":"header","format":"fairlead-recording","version":1,"segment":1,"started":1.0,"code":"x"}')
PACKED = {
    "zeros": (bytes(512 * MIB), "expands to more than 250 times its size"),
    "one line that does not end": (b'{"chain":"' + b"x" * (300 * MIB), "expands to more than 250 times its size"),
    "many lines": (HEADER + b"{}\n" * 40_000_000, "expands to more than 250 times its size"),
    "depth": (HEADER + record(b'{"kind":"gap","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "nested too deeply"),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("packed")
    for name, (plain, _) in PACKED.items():
        (made / name).mkdir()
        (made / name / "segment-00000001.jsonl.gz").write_bytes(gzip.compress(plain, 6))
    return {name: made / name / "segment-00000001.jsonl.gz" for name in PACKED}


SNAPSHOT_ENTRANCES: dict[str, Words] = {
    "what-if": lambda file: ["what-if", "--add-nodes", "1xhgx-h100", "--snapshot", str(file)],
    "record": lambda file: ["record", "--anonymise", str(file), str(file.with_name("out"))],
    "ui": lambda file: ["ui", "--snapshot", str(file)],
}


@pytest.fixture(scope="module", autouse=True)
def snapshots_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("first") / "first"
    file.write_text("[")
    for words in (*SNAPSHOT_ENTRANCES.values(), lambda file: ["replay", str(file)]):
        invoke(words(file))


@pytest.mark.slow
@pytest.mark.parametrize("bomb", PACKED)
@pytest.mark.parametrize("words", [["replay"], ["record", "--anonymise"]], ids=["replay", "record"])
def test_a_recording_that_is_a_bomb_is_refused(words: list[str], bomb: str, packed: dict[str, Path], tmp_path) -> None:
    refused([*words, str(packed[bomb]), *([str(tmp_path / "out")] if len(words) > 1 else [])], PACKED[bomb][1])


@pytest.mark.slow
@pytest.mark.parametrize("entrance", SNAPSHOT_ENTRANCES)
def test_a_snapshot_that_is_a_bomb_is_refused(entrance: str, packed: dict[str, Path], tmp_path) -> None:
    file = tmp_path / "snapshot"
    file.write_bytes(packed["zeros"].read_bytes())
    refused(SNAPSHOT_ENTRANCES[entrance](file), "expands to more than 250 times its size")


BEGINS = b'{"format":"fairlead-snapshot","version":1,"at":1,"facts":{"slices":{},"x":"'
PLAIN = {
    "depth": (b'{"format":"fairlead-snapshot","version":1,"at":1,"facts":{"queues":' + b"[" * 100_000, "nested too deeply"),
    "values": (b'{"format":"x","facts":{"queues":{"a":[' + b"[]," * 2_000_000 + b"[]]}}}", "holds more than"),
    "number": (json.dumps({"format": "fairlead-snapshot", "version": 1, "at": 1, "facts": {"slices": {}, "quotas": {
        "a": {"deserved": {"h100": "1e9999999"}}}}}).encode(), ""),
    "text": (BEGINS + b"x" * (30 * MIB) + b'"}}', "no ResourceSlices"),
    "a gigabyte": (BEGINS, "is longer than 33554432 bytes: compress it with gzip"),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("bomb", PLAIN)
@pytest.mark.parametrize("entrance", SNAPSHOT_ENTRANCES)
def test_a_snapshot_that_is_not_compressed_is_bounded_too(entrance: str, bomb: str, tmp_path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes(PLAIN[bomb][0])
    if bomb == "a gigabyte":
        with file.open("r+b") as stream:
            stream.truncate(2**30)
    if (entrance, bomb) == ("record", "text"):
        pytest.skip("what has no slices may be written without names")
    refused(SNAPSHOT_ENTRANCES[entrance](file), PLAIN[bomb][1])


@pytest.mark.parametrize("entrance", SNAPSHOT_ENTRANCES)
def test_a_snapshot_that_never_ends_is_read_up_to_the_limit(entrance: str) -> None:
    if entrance == "record":
        pytest.skip("reads regular files only")
    refused(SNAPSHOT_ENTRANCES[entrance](Path("/dev/zero")), "is longer than 33554432 bytes")


TRACES = {
    "cells": ("sn,cpu_milli,memory_mib,gpu,model\n" + "," * 8_000_000, "more than 1000000 cells"),
    "columns": (",".join(["sn", "cpu_milli", "memory_mib", "gpu", "model", *map(str, range(100_000))]) + "\n1" * 500_000, "more than 1000000 cells"),
    "number": ("sn,cpu_milli,memory_mib,gpu,model\na," + "9" * 100_000, "is no whole number"),
    "long line": ("x" * (17 * MIB), "is longer than"),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("bomb", TRACES)
def test_a_trace_that_is_a_bomb_is_refused(bomb: str, tmp_path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("")
    words = ["simulate", "--nodes", str(file), "--pods", str(file)]
    invoke(words)
    file.write_text(TRACES[bomb][0])
    refused(words, TRACES[bomb][1])


LEDGERS = {
    "view": ("DROP TABLE waits; CREATE VIEW waits AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n",
             "it holds the view waits"),
    "trigger": ("CREATE TRIGGER t AFTER INSERT ON waits BEGIN DELETE FROM waits; END", "it holds the trigger t"),
    "generated column": ("ALTER TABLE waits ADD COLUMN x GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL",
                         "it holds the generated column waits.x"),
}  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize("bomb", LEDGERS)
@pytest.mark.parametrize("words", ["info", "check", "backup", "claims"])
def test_a_ledger_that_is_a_bomb_is_refused(words: str, bomb: str, tmp_path) -> None:
    file = tmp_path / "ledger.sqlite"
    open_writer(str(file), writer="test").close()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(LEDGERS[bomb][0])
        connection.execute("PRAGMA journal_mode=DELETE")
    more = [str(tmp_path / "out.sqlite")] if words == "backup" else []
    refused(["ledger", words, str(file), *more], LEDGERS[bomb][1])


def test_a_large_value_in_a_ledger_is_refused(tmp_path) -> None:
    file = tmp_path / "ledger.sqlite"
    open_writer(str(file), writer="test").close()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE fairlead_ledger SET writer = hex(zeroblob(20000000))")
    refused(["ledger", "info", str(file)], "too big")


def test_a_token_file_that_never_ends_is_read_up_to_the_limit() -> None:
    reading = TokenFile(Path("/dev/zero"), lambda: 0.0)
    said, _, peak_bytes = apart.spent(lambda: raised(reading._read))
    assert "is longer than 1048576 bytes" in said
    assert peak_bytes <= 100 * MIB


def test_settings_in_python_are_bounded(tmp_path) -> None:
    file = tmp_path / "jupyterhub_config.py"
    for text, said in (
        ("a" + ".a" * 100_000 + " = 1", ""),
        ("(" * 100_000, "is no Python"),
        ("#" * MIB, "longer than"),
    ):
        file.write_text(text)
        with cpu.at_most(1.0):
            done = invoke(["check", str(file)])
        assert "Traceback" not in done.output
        assert said in done.output


def test_a_device_that_never_ends_is_read_up_to_the_limit() -> None:
    refused(TEXT_ENTRANCES["check"](Path("/dev/zero")), "is longer than 16777216 bytes")


def test_a_pipe_is_read_as_a_file_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"printf some > {pipe}"]):
        assert files.unpacked(pipe) == b"some"
