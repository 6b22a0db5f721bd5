"""An anonymised recording has none of the names, decides the same, and replays; selectors keep their meaning."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PlacedMember, RefusedNode
from fairlead.engine.types.settings import Autoscaling, FlavorSpec
from fairlead.history.facts import form
from fairlead.history.facts.snapshot_file import dump, load
from fairlead.history.recording.anonymise import anonymise
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import Decision
from fairlead.history.recording.rename import Collected, Pseudonyms, Renaming, public
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import segments
from fairlead.kube import resource
from tests.support.days import CORPUS, SHAPES
from tests.support.decisions_sources import Data, selected
from tests.support.history import record

KEY = b"a secret"
NOWHERE = Data(Path("/nowhere"), Path("/nowhere"))


def text_of(directory: Path) -> str:
    return "".join(gzip.decompress(path.read_bytes()).decode() for _, path in segments(directory))


def names_in(directory: Path) -> Collected:
    collected = Collected()
    for read in Reader([directory]):
        if isinstance(read.record, Decision):
            Renaming(collected).facts(read.record.facts)
    return collected


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_an_anonymised_day_has_no_name_and_replays_with_the_same_decisions(name: str, tmp_path: Path):
    out = tmp_path / "out"
    found = anonymise([CORPUS / name], out, KEY)
    assert found.decisions == found.alike >= 50
    text, names = text_of(out), names_in(CORPUS / name).names
    # "gpu" names a flavor and a request here, but also a type of device and the devices.
    assert [each for each in sorted(names - {"gpu", "ml"}) if each in text] == []
    assert '"ml/' not in text
    assert '"ml"' not in text
    for distinct in ("train-", "node-0", "research", "vision", "uid-train"):
        assert distinct not in text
        assert distinct in text_of(CORPUS / name)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["scenarios", "clusters/"])
def test_whatever_is_recorded_replays_without_its_names(source: str, tmp_path: Path):
    """Selectors, taints, topologies, budgets, partitions: the orders and the references all have to hold."""
    decisions = alike = 0
    for place, case in enumerate([case for case in selected("quick", NOWHERE)[0] if case.name.startswith(source)][::9]):
        for directory in record(case.run, tmp_path / str(place)):
            out = directory.with_name(f"{directory.name}-out")
            found = anonymise([directory], out, KEY)
            assert list(differences(Reader([out]), Counts())) == [], case.name
            decisions, alike = decisions + found.decisions, alike + found.alike
    assert decisions >= 20
    assert alike == decisions


@pytest.mark.slow
def test_one_key_gives_the_same_pseudonyms_and_another_gives_others(tmp_path: Path):
    texts = []
    for number, key in enumerate((KEY, KEY, b"another")):
        anonymise([CORPUS / "quiet"], tmp_path / str(number), key)
        texts.append(text_of(tmp_path / str(number)))
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("kubernetes.io/hostname", True), ("topology.kubernetes.io/zone", True), ("gpu.fairlead.dev", True), ("cpu", True),
        ("nvidia.com/gpu", True), ("acme.example/team", False), ("gpus.acme.example", False), ("notkubernetes.io/x", False),
    ],
)  # fmt: skip
def test_keys_of_other_domains_are_names(key: str, kept: bool):
    assert public(key) is kept


@pytest.mark.slow
def test_the_command_takes_recordings_and_snapshots(tmp_path: Path):
    def fairlead(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fairlead", "record", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = fairlead("--anonymise", CORPUS / "quiet", tmp_path / "out")
    assert (done.returncode, "names replaced" in done.stderr) == (0, True)
    again = fairlead("--anonymise", CORPUS / "quiet", tmp_path / "out")
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)
    from tests.support.engine.objects import claim_spec, device_request, gang
    from tests.support.engine.world import h100_world

    world = h100_world(2)
    runs = gang("secretive-runs", 1, claim_spec(device_request(4)))
    world.movable.add(runs.id)  # it says what it would ask for elsewhere
    world.carry_out(world.decide(runs), [runs])
    kept = tuple(device.ref for claim in world.inventory.claims() for device in claim.devices)
    waits = replace(gang("secretive", 2, claim_spec(device_request(4))), kept=kept)
    snapshot = world.snapshot(waits)
    (tmp_path / "in.json").write_bytes(dump(snapshot, 5.0))
    done = fairlead("--anonymise", tmp_path / "in.json", tmp_path / "out.json")
    assert done.returncode == 0
    data = (tmp_path / "out.json").read_bytes()
    assert b"secretive" not in data
    assert json.loads(data)["at"] == 5.0
    found, at = load(data)
    assert found.running[0].relocation is not None
    assert len(decide(found, at).admissions) == 1
    (tmp_path / "cut.json").write_bytes(data[: len(data) // 2])
    refused = fairlead("--anonymise", tmp_path / "cut.json", tmp_path / "other.json")
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert not (tmp_path / "other.json").exists(), "nothing is in the way of the next try"


def test_texts_that_only_people_read_and_names_of_classes_are_not_kept():
    """The owner of a class named it, a scheduler's sentence names volumes; both stand in quotas and patterns, too."""
    gang = GangRequest(
        namespace="ml", name="train", uid="1", size=1,
        refused=(RefusedNode(node="host-a", until=1.0, why='persistentvolumeclaim "secret-data" not found {team:secret}'),),
        quota_charge=(("secret-h100.deviceclass.resource.k8s.io/devices", 1), ("requests.deviceclass.resource.kubernetes.io/secret-h100", 1)),
    )  # fmt: skip
    cel = {"cel": {"expression": 'device.attributes["acme.example"].host.matches("^(host-a|host-b)$")'}}
    classes: dict[str, resource.DeviceClassSpec | None] = {
        "secret-h100": msgspec.convert({"selectors": [cel]}, resource.DeviceClassSpec),
        "gpu.fairlead.dev": resource.DeviceClassSpec(),
    }
    flavor = FlavorSpec(
        device_selector="true",
        autoscaling=Autoscaling(mode="Visible", patience_s=1.0, wait_s=1.0, device_classes=("secret-h100",)),
    )
    nodes: dict[str, form.Node | None] = {"host-a": form.Node(), "host-b": form.Node()}
    facts = form.Facts(gangs={"ml/train": gang}, classes=classes, nodes=nodes, flavors={"h100": flavor})
    collected = Collected()
    Renaming(collected).facts(facts)
    found = Renaming(Pseudonyms(collected, KEY)).facts(facts)
    text = msgspec.json.encode(found).decode()
    assert [name for name in ("secret", "host-a", "host-b", "train") if name in text] == []
    assert "gpu.fairlead.dev" in found.classes
    (name,) = set(found.classes) - {"gpu.fairlead.dev"}
    renamed = found.gangs[next(iter(found.gangs))]
    assert renamed is not None
    assert [charged for charged, _ in renamed.quota_charge] == [
        f"{name}.deviceclass.resource.k8s.io/devices",
        f"requests.deviceclass.resource.kubernetes.io/{name}",
    ]
    kept = found.classes[name]
    assert kept is not None
    assert kept.selectors[0].cel is not None
    for node in found.nodes:
        assert node in kept.selectors[0].cel.expression


def test_what_aligns_a_gang_names_its_requests_as_its_claims_do():
    claims = tuple(
        ClaimRequest(
            key=key,
            namespace="ml",
            name=key,
            spec=msgspec.convert(
                {"devices": {"requests": [{"name": "secret", "exactly": {"deviceClassName": "c", "count": 1}}]}},
                resource.ResourceClaimSpec,
            ),
        )
        for key in ("c1", "c2")
    )
    asked = f"{names.DRIVER}/rail=same of secret per subgroup"
    held = (PlacedMember(claims=claims[1:], subgroup="first"),)
    gang = GangRequest(
        namespace="ml", name="train", uid="1", size=1, claims=claims[:1], align=asked, placed_members=held
    )
    facts = form.Facts(gangs={"ml/train": gang, "ml/other": replace(gang, name="other", align="secret")})
    collected = Collected()
    Renaming(collected).facts(facts)
    found = Renaming(Pseudonyms(collected, KEY)).facts(facts)
    text = msgspec.json.encode(found).decode()
    assert [name for name in ("secret", "first", "train") if name in text] == []
    renamed = next(each for each in found.gangs.values() if each is not None and " of " in str(each.align))
    assert renamed.align == asked.replace("secret", renamed.claims[0].spec.devices.requests[0].name)
