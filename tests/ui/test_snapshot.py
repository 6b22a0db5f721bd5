"""A snapshot's file as pages: what the decision on it says of its gangs and queues."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.history.facts.snapshot_file import dump
from fairlead.ui.model.queues import tree
from fairlead.ui.reading.cluster import NotReadError
from fairlead.ui.reading.file import FileSource
from tests.support import ui
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

from .markup import check


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of two nodes with eight GPUs one is held whole, and of the other the half; one gang waits, one can start."""
    world = h100_world(2)
    held = gang("held", 3, claim_spec(device_request(4)))
    assert not world.carry_out(world.decide(held), (held,))
    path = tmp_path / "a snapshot.json"
    waiting = (gang("waits", 2, claim_spec(device_request(4))), gang("starts", 1, claim_spec(device_request(1))))
    path.write_bytes(dump(world.snapshot(*waiting), world.now))
    return path


async def test_gangs_of_a_snapshot_have_the_decisions_positions_and_reasons(file: Path):
    facts = await FileSource(file).facts()
    phases = {raw["metadata"]["name"]: raw["status"] for raw in facts.gangs}
    assert (phases["held"]["phase"], len(phases["held"]["nodes"])) == ("Running", 2)
    assert phases["waits"]["phase"] == "Waiting"
    assert phases["waits"]["position"] == 1  # the one before it starts
    assert phases["waits"]["why"]["holders"][0]["gang"] == "ml/held"
    assert phases["starts"]["reason"] == "Queued"


async def test_every_page_of_a_snapshot_is_shown_and_says_which_file_it_is(file: Path):
    async with ui.reader(FileSource(file)) as reader:
        for path in ("/", "/map", "/queues", "/gangs", "/gangs/ml/waits", "/gangs/ml/held", "/gangs/ml/starts"):
            status, _, text = await reader.get(path)
            assert status == 200, path
            assert "a snapshot.json" in check(text).text
        assert [each["name"] for each in json.loads((await reader.get("/gangs?format=json"))[2])] == [
            "waits",
            "starts",
            "held",
        ]


async def test_queues_of_a_snapshot_have_use_and_demand(tmp_path: Path):
    world = h100_world(1)
    world.flavors = (FlavorSpec(name="h100", device_selector="true"),)
    world.queues = (QueueSpec(name="q", quotas=(FlavorQuota(flavor="h100", deserved=6, limit=8),)),)
    held = gang("held", 1, claim_spec(device_request(4)), queue="q")
    assert not world.carry_out(world.decide(held), (held,))
    path = tmp_path / "s"
    path.write_bytes(dump(world.snapshot(gang("more", 1, claim_spec(device_request(8)), queue="q")), world.now))
    (line,) = tree((await FileSource(path).facts()).queues)
    found = asdict(line)
    assert (found["running"], found["waiting"]) == (1, 1)
    share = found["shares"][0]
    assert (share["deserved"], share["limit"], share["used"], share["demand"]) == ("6", "8", "4", "12")


def test_what_is_no_snapshot_is_refused(tmp_path: Path):
    (tmp_path / "x").write_text("{}")
    with pytest.raises(NotReadError, match="this is no snapshot"):
        FileSource(tmp_path / "x")
