"""Manifests in the form that were made to stop their reader: the server does not read them, and the process that does refuses them at once."""

import json

import pytest

from fairlead.history.facts.snapshot_file import dump
from fairlead.ui.reading.file import FileSource
from fairlead.ui.serve.what_if import Computing, Where
from tests.support import cpu, ui
from tests.support.engine.world import h100_world

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
BOMBS = {
    "aliases": (LAUGHS, "holds more than 20000 values, its aliases written out"),
    "long scalar, many aliases": (f"a: &a {'x' * 8_000}\nb: [{'*a,' * 4_000}]\n", "aliases written out"),
    "depth": ("- " * 20_000, "nested more than 64 levels deep"),
    "number": (f"a: 1{':1' * 10_000}", "a number has 20001 characters"),
    "key": (f"? {'k' * 2_000}\n: v", "a key has 2000 characters"),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_bomb_in_the_form_costs_the_server_nothing_and_is_refused_with_its_limit(bomb, tmp_path):
    text, said = BOMBS[bomb]
    path = tmp_path / "snapshot.json"
    path.write_bytes(dump(h100_world(1).snapshot(), 1.0))
    async with ui.reader(FileSource(path), computing=Computing(Where(snapshot=path))) as reader:
        await reader.get("/what-if")
        with cpu.at_most(0.3):
            status, _, answer = await reader.post("/what-if", {"manifests": text}, Accept="application/json")
        assert (status, said in json.loads(answer)["message"]) == (400, True), answer
