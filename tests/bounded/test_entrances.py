"""Every bomb at every entrance: refused within a second of CPU and 100 MiB, with a message that names the limit."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.bounded.limits import SMALL
from fairlead.cli.cost import reading as cost_reading
from fairlead.driver.backend.profiles import loading
from fairlead.driver.layouts import config as layouts
from fairlead.history.recording import records
from fairlead.ui.reading import manifests
from tests.support import cpu, memory
from tests.support.commands import invoke

MIB = 2**20
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
TEXTS = {
    "aliases": (LAUGHS, "holds more than"),
    "long scalar, many aliases": (f"a: &a {'x' * 50_000}\nb: [{'*a,' * 10_000}]\n", "aliases written out"),
    "depth": ("[" * 100_000, "nested more than 64 levels deep"),
    "depth of blocks": ("- " * 100_000, "nested more than 64 levels deep"),
    "depth of JSON": ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested more than 64 levels deep"),
    "values": ("- a\n" * 4_000_000, "holds more than"),
    "values of JSON": ('{"a":[' + "[]," * 5_000_000 + "[]]}", "holds more than"),
    "documents": ("---\n" * 4_000_000, "holds more than"),
    "number": (f"a: {'9' * 400_000}", "a number has 400000 characters"),
    "sexagesimal number": (f"a: 1{':1' * 100_000}", "a number has 200001 characters"),
    "number of JSON": (f'{{"a": {"9" * 400_000}}}', "a number has 400000 characters"),
    "key": (f"? {'k' * 3_000}\n: v", "a key has 3000 characters"),
    "key of JSON": (f'{{"{"k" * 3_000}": 1}}', "a key has 3000 characters"),
    "keys of one hash": ("".join(f"{k * (2**61 - 1)}: 1\n" for k in range(10, 20_000)), "a key is a number"),
    "merge keys": ("a: &a {x: 1}\nb:\n" + "  <<: *a\n" * 20_000, "merge keys"),
    "long line": ("x" * (17 * MIB), "is longer than"),
}
YAML_ENTRANCES: dict[str, Callable[[Path], list[str]]] = {
    "check": lambda file: ["check", str(file)],
    "check --policies": lambda file: ["check", str(file), "--policies", str(file)],
    "check cel": lambda file: ["check", "cel", "true", "--device", str(file)],
    "import": lambda file: ["import", "--from", "kueue", str(file)],
    "what-if -f": lambda file: ["what-if", "--snapshot", str(file), "-f", str(file)],
    "replay --policy": lambda file: ["replay", "absent", "--policy", str(file)],
    "tenant create": lambda file: ["tenant", "create", "-f", str(file)],
    "kubeconfig": lambda file: ["gangs", "--kubeconfig", str(file)],
}


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory) -> None:
    """Each command once, so that no test counts what is imported."""
    file = tmp_path_factory.mktemp("first") / "first.yaml"
    file.write_text("[")
    for words in YAML_ENTRANCES.values():
        invoke(words(file))


def refused(words: list[str], said: str, *, seconds: float = 1.0) -> None:
    with memory.at_most(100 * MIB), cpu.at_most(seconds):
        done = invoke(words)
    assert done.exit_code in {1, 2}, done.output
    assert "Traceback" not in done.output
    assert said in " ".join(done.output.split()), done.output[-500:]
    assert len(done.output) < 2_000


@pytest.mark.parametrize("entrance", ["check", "import"])
@pytest.mark.parametrize("bomb", TEXTS)
def test_every_bomb_is_refused(entrance: str, bomb: str, tmp_path) -> None:
    text, said = TEXTS[bomb]
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    refused(YAML_ENTRANCES[entrance](file), said)


@pytest.mark.parametrize("bomb", ["aliases", "depth of JSON", "number", "key"])
@pytest.mark.parametrize("entrance", YAML_ENTRANCES)
def test_every_entrance_refuses_what_has_a_bomb_in_it(entrance: str, bomb: str, tmp_path) -> None:
    text, said = TEXTS[bomb]
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    refused(YAML_ENTRANCES[entrance](file), said)


READERS: dict[str, Callable[[Path], object]] = {
    "cost --flavors": lambda file: cost_reading.settings(file, None, None),
    "profile of a simulated node": lambda file: loading.load(str(file)),
    "MIG layouts": lambda file: layouts.parse(file.read_bytes(), path=str(file)),
    "form of what-if": lambda file: list(manifests.documents(file.read_text(), "manifests", SMALL)),
}


@pytest.mark.parametrize("bomb", ["aliases", "depth", "number", "key"])
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_settings_refuses_a_bomb(reader: str, bomb: str, tmp_path) -> None:
    text, said = TEXTS[bomb]
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    with (
        memory.at_most(100 * MIB),
        cpu.at_most(1.0),
        pytest.raises(Exception, match=f"{said}|more than 16 levels|holds more than"),
    ):
        READERS[reader](file)


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


@pytest.mark.parametrize("bomb", PACKED)
def test_a_recording_that_is_a_bomb_is_refused(bomb: str, packed) -> None:
    refused(["replay", str(packed[bomb])], PACKED[bomb][1])


@pytest.mark.parametrize(
    "words", [["what-if", "--add-nodes", "1xhgx-h100", "--snapshot"], ["record", "--anonymise"], ["ui", "--snapshot"]]
)
def test_a_snapshot_that_is_a_bomb_is_refused(words: list[str], packed, tmp_path) -> None:
    file = tmp_path / "snapshot"
    file.write_bytes(packed["zeros"].read_bytes())
    more = [str(tmp_path / "out")] if words[0] == "record" else []
    refused([*words, str(file), *more], "expands to more than 250 times its size")


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (b'{"format":"fairlead-snapshot","version":1,"at":1,"facts":{"queues":' + b"[" * 100_000, "nested too deeply"),
        (b'{"format":"x","facts":{"queues":{"a":[' + b"[]," * 2_000_000 + b"[]]}}}", "holds more than"),
        (json.dumps({"format": "fairlead-snapshot", "version": 1, "at": 1, "facts": {"slices": {}, "quotas": {
            "a": {"deserved": {"h100": "1e9999999"}}}}}).encode(), ""),
    ],
    ids=["depth", "values", "number"],
)  # fmt: skip
def test_a_snapshot_that_is_not_compressed_is_bounded_too(plain: bytes, said: str, tmp_path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes(plain)
    refused(["what-if", "--add-nodes", "1xhgx-h100", "--snapshot", str(file)], said)


def test_a_certificate_that_is_a_bomb_is_refused(tmp_path) -> None:
    file = tmp_path / "certificate.json"
    file.write_bytes(b'{"version":' + b"[" * 200_000)
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(b"{}")
    refused(["verify", str(file), "--snapshot", str(snapshot)], "nested too deeply")


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
    refused(YAML_ENTRANCES["check"](Path("/dev/zero")), "is longer than 16777216 bytes")
