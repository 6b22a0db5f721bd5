"""`explain --prove` and `verify` on a snapshot's file: what they print, and what they say of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.history.facts.snapshot_file import dump
from tests.support.commands import invoke
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

NOT_PROVEN = 3


def snapshot_of(world: World, path: Path, *gangs: Any) -> Path:
    path.write_bytes(dump(world.snapshot(*gangs), world.now))
    return path


@pytest.fixture
def world() -> World:
    """Of two nodes with eight GPUs one is held whole, and of the other the half."""
    world = h100_world(2)
    held = gang("held", 3, claim_spec(device_request(4)))
    assert not world.carry_out(world.decide(held), (held,))
    return world


@pytest.fixture
def snapshot(world: World, tmp_path: Path) -> Path:
    return snapshot_of(world, tmp_path / "snapshot.json", gang("waits", 2, claim_spec(device_request(4))))


def call(*arguments: Any, stdin: bytes | None = None) -> tuple[int, str, str]:
    found = invoke([str(each) for each in arguments], input=stdin)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def proof(snapshot: Path, name: str = "waits") -> dict[str, Any]:
    status, text, _ = call("explain", name, "--prove", "--snapshot", snapshot, "-n", "ml", "-o", "json")
    assert status == 0
    return dict(json.loads(text))


def verify(certificate: Any, snapshot: Path, *more: str) -> tuple[int, str]:
    data = certificate if isinstance(certificate, bytes) else json.dumps(certificate).encode()
    status, text, _ = call("verify", "-", "--snapshot", snapshot, *more, stdin=data)
    return status, text


def test_a_certificate_says_what_holds_the_devices(snapshot: Path):
    status, text, _ = call("explain", "gang/waits", "--prove", "--snapshot", snapshot, "-n", "ml")
    assert status == 0
    assert text.startswith("gang ml/waits cannot start now: proven\n")
    assert "all nodes together take at most 1" in text
    assert "0 free of 8 devices; ruled out: 4 held by ml/held-" in text


def test_a_certificate_verifies_from_a_file_and_from_standard_input(snapshot: Path, tmp_path: Path):
    certificate = proof(snapshot)
    assert verify(certificate, snapshot)[1].startswith("verified\ngang ml/waits cannot start now: proven\n")
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certificate))
    status, text, _ = call("verify", path, "--snapshot", snapshot, "-o", "json")
    assert status == 0
    assert json.loads(text) == {"verdict": "verified", "gang": "ml/waits", "premises": [], "message": ""}


def test_a_false_certificate_is_refused_with_what_is_true(snapshot: Path):
    certificate = proof(snapshot)
    devices = next(b for n in certificate["because"]["nodes"] for b in n["because"] if b["kind"] == "Devices")
    devices["ruledOut"][0]["claim"] = "ml/innocent"
    status, text = verify(certificate, snapshot)
    assert status == 1
    assert "refused" in text
    assert "ml/innocent" in text
    assert "true is [Held(device=" in text


def test_a_certificate_of_another_snapshot_is_refused(snapshot: Path, world: World, tmp_path: Path):
    certificate = proof(snapshot)
    world.end("ml/held")
    later = snapshot_of(world, tmp_path / "later.json", gang("waits", 2, claim_spec(device_request(4))))
    status, text = verify(certificate, later)
    assert status == 1
    assert "of another snapshot" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "it may be cut"),
        (lambda text: b"", "it may be cut"),
        (lambda text: b"\xff\xfe", "no certificate"),
        (lambda text: b"[]", "version: None"),
        (lambda text: text.replace(b'"version": 1', b'"version": 2'), "version: 2: this fairlead reads"),
        (lambda text: text.replace(b'"uid":', b'"iud":'), "no certificate"),
        (lambda text: text.replace(b'"Place"', b'"Palace"'), "no certificate"),
    ],
)
def test_what_is_no_certificate_is_refused(snapshot: Path, change: Any, said: str):
    status, text = verify(change(json.dumps(proof(snapshot)).encode()), snapshot)
    assert status == 1
    assert text.startswith("refused: ")
    assert said in text


def test_a_snapshot_that_cannot_be_read_is_a_message(snapshot: Path, tmp_path: Path):
    certificate = json.dumps(proof(snapshot)).encode()
    cut = tmp_path / "cut.json"
    cut.write_bytes(snapshot.read_bytes()[:1000])
    empty = tmp_path / "empty.json"
    empty.write_text('{"format": "fairlead-snapshot", "version": 1, "at": 0, "facts": {}}')
    other = tmp_path / "other.json"
    other.write_text('{"format": "kubeconfig", "version": 1, "at": 0, "facts": {}}')
    for path, said in ((cut, "cut"), (empty, "no ResourceSlices"), (other, "kubeconfig")):
        status, _, message = call("verify", "-", "--snapshot", path, stdin=certificate)
        assert status == 1
        assert said in message
        status, _, message = call("explain", "waits", "--prove", "--snapshot", path, "-n", "ml")
        assert status == 1
        assert said in message


def test_a_gang_that_can_start_or_is_unknown_has_no_certificate(world: World, tmp_path: Path):
    path = snapshot_of(world, tmp_path / "snapshot.json", gang("small", 1, claim_spec(device_request())))
    for name, said in (
        ("small", "gang ml/small can start"),
        ("held", "gang ml/held runs already"),
        ("nobody", "no gang ml/nobody waits"),
    ):
        status, _, message = call("explain", name, "--prove", "--snapshot", path, "-n", "ml")
        assert status == 1
        assert said in message
    status, _, message = call("explain", "pod/small", "--prove", "--snapshot", path, "-n", "ml")
    assert status == 2
    assert "only of gangs" in message


def test_premises_are_named(tmp_path: Path):
    world = h100_world(1)
    waits = [gang(name, 1, claim_spec(device_request(8)), created=at) for name, at in (("first", 1.0), ("second", 2.0))]
    path = snapshot_of(world, tmp_path / "snapshot.json", *waits)
    certificate = proof(path, "second")
    status, text = verify(certificate, path)
    assert status == 0
    assert text.startswith("verified on its premises")
    assert "premise: gang ml/first has 8 devices (Admitted)" in text
    assert json.loads(verify(certificate, path, "-o", "json")[1])["premises"] == ["ml/first (Admitted)"]


def test_without_a_proof_the_exit_status_says_so(tmp_path: Path):
    from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec

    world = h100_world(1)
    world.flavors = (FlavorSpec(name="any", device_selector="true"),)
    world.queues = (
        QueueSpec(name="keeps", quotas=(FlavorQuota(flavor="any", deserved=4, lending_limit=0),)),
        QueueSpec(name="team", quotas=(FlavorQuota(flavor="any", deserved=4),)),
    )
    path = snapshot_of(world, tmp_path / "s.json", gang("waits", 1, claim_spec(device_request(5)), queue="team"))
    status, text, _ = call("explain", "waits", "--prove", "--snapshot", path, "-n", "ml", "-o", "json")
    assert status == NOT_PROVEN
    status, text = verify(text.encode(), path)
    assert status == NOT_PROVEN
    assert text.startswith("not proven: ")


def test_a_snapshot_without_prove_is_a_usage_error(snapshot: Path):
    status, _, message = call("explain", "waits", "--snapshot", snapshot)
    assert status == 2
    assert "--prove" in message
