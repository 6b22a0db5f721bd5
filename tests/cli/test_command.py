"""A command from a dataclass: what its fields declare is what a user can write, and what the work is given."""

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer

from fairlead.cli.command import Group, command, help_of
from fairlead.cli.main import PANELS
from fairlead.kube.flags import DURATION, SIZE
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.cli.test_without_sandbox import python

FOUND: list["Sample"] = []


@dataclass(frozen=True, kw_only=True)
class Base:
    first: Annotated[str, typer.Argument()]
    inherited: Annotated[bool, typer.Option("--inherited")] = False


@dataclass(frozen=True, kw_only=True)
class Sample(Base):
    """What it does."""

    second: Annotated[tuple[Path, ...], typer.Argument()] = ()
    wait_s: Annotated[float, DURATION, typer.Option("--wait")] = 5400.0
    size: Annotated[int, SIZE, typer.Option()] = 2 * 2**30
    names: Annotated[tuple[str, ...], typer.Option("--name")] = ("a", "b")
    place: Annotated[Path | str | None, typer.Option()] = None
    unseen: int = 3

    def run(self) -> int:
        FOUND.append(self)
        return 4


def run(*words: str) -> tuple[int, str]:
    FOUND.clear()
    try:
        return command(Sample, "sample").main(list(words), prog_name="sample", standalone_mode=False), ""
    except typer.BadParameter as error:
        return 2, f"{error.param_hint}: {error}"


def test_without_flags_the_fields_have_their_defaults():
    assert run("x") == (4, "")
    assert [Sample(first="x")] == FOUND


def test_each_flag_sets_its_field():
    run("x", "y", "z", "--wait=90s", "--size=64Ki", "--name=c", "--name=d", "--inherited", "--place=/p")
    (made,) = FOUND
    assert made == Sample(
        first="x",
        second=(Path("y"), Path("z")),
        wait_s=90.0,
        size=65536,
        names=("c", "d"),
        inherited=True,
        place=Path("/p"),
    )
    assert isinstance(made.place, Path)


@pytest.mark.parametrize(
    ("word", "said"), [("--wait=soon", "--wait: 'soon' is no duration"), ("--size=0", "--size: '0' is no size")]
)
def test_a_wrong_value_is_refused_by_the_name_of_its_flag(word, said):
    code, text = run("x", word)
    assert (code, text[: len(said)]) == (2, said)
    assert FOUND == []


def test_help_shows_own_flags_before_inherited_ones_and_defaults_as_they_are_written():
    made = command(Sample, "sample")
    assert [each.name for each in made.params] == ["first", "second", "wait_s", "size", "names", "place", "inherited"]
    assert {each.name: each.default for each in made.params if each.name in {"wait_s", "size"}} == {
        "wait_s": "1h30m",
        "size": "2Gi",
    }
    assert made.help == "What it does."


async def test_what_a_list_of_gangs_does_not_need_is_not_imported(tmp_path):
    async with Cluster(ClusterOptions(workdir=tmp_path, nodes=(), run_programs=False)) as cluster:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-X", "importtime", "-m", "fairlead", "gangs", "-A",
            env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, stderr = await process.communicate()
    lines = stderr.decode().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert process.returncode == 0
    assert "fairlead.ui.model.gangs" in imported
    assert (
        imported & {"aiohttp", "kubernetes", "pydantic", "rich.console", "jinja2", "fairlead.ui.model.queues"} == set()
    )


def places(commands: Mapping[str, str | Group]) -> Iterator[str]:
    for given in commands.values():
        yield from [given] if isinstance(given, str) else places(given.commands)


PLACES = [place for table in PANELS.values() for place in places(table)]


def test_help_imports_no_command_and_says_of_each_what_its_docstring_says():
    done = python(
        "-c",
        "import sys; from fairlead.cli.main import main; sys.argv[1:] = ['--help']\n"
        "try:\n main()\nexcept SystemExit:\n print([m for m in sys.modules if m.startswith('fairlead.cli.')])",
    )
    imported = done.stdout.splitlines()[-1]
    assert "fairlead.cli.main" in imported
    for place in PLACES:
        module, _, kind = place.partition(":")
        assert repr(f"fairlead.cli.{module}") not in imported
        found = getattr(importlib.import_module(f"fairlead.cli.{module}"), kind)
        assert help_of(place) == inspect.getdoc(found)
    assert len(PLACES) > 40
