"""How a program is started: as the whole command says it, for less CPU time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cli.programs.start import PROGRAMS, program_app
from tests.support import cpu

ROOT = Path(__file__).parents[2]
START = "import sys; sys.argv = ['fairlead', 'driver', '--node-name', 'n', '--backend', 'none-such']; from fairlead.cli.programs.start import main; main()"
START_CPU_S = 0.85
"""Of the driver, to where it looks for its hardware, on the machine that bounds are meant for, where it took 0.68 s (1.0 among all commands)."""


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arguments", [["--help"], ["--no-such-flag"], ["--log-format", "none-such"]], ids=str)
def test_help_and_errors_are_those_of_the_whole_command(program: str, arguments: list[str]) -> None:
    own, all_ = (
        CliRunner().invoke(each, [program, *arguments], prog_name="fairlead", terminal_width=160)
        for each in (program_app(program), app)
    )
    assert (own.exit_code, own.output) == (all_.exit_code, all_.output)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)


def test_no_other_command_is_imported_and_garbage_is_collected_once_it_runs() -> None:
    said = (
        "import gc, sys; sys.argv = ['fairlead', 'controller', '--help']; import fairlead.cli.programs.start as start\n"
        "try: start.main()\nexcept SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('fairlead.cli.') and m.split('.')[2] not in ('programs', 'options')), gc.isenabled())"
    )
    assert run(said).stdout.splitlines()[-1] == "[] False"
    made = run(
        "import asyncio, gc\nfrom fairlead.cli.serve import serve\n"
        "async def program(options, *, ready): print(gc.isenabled(), gc.get_freeze_count() > 0)\n"
        "gc.disable(); serve(program, None, log_format='text', log_level='INFO')"
    )
    assert made.stdout.split() == ["True", "True"], made.stderr


def test_the_other_commands_are_all_there() -> None:
    made = run(
        "import sys; sys.argv = ['fairlead', 'explain', '--help']; from fairlead.cli.programs.start import main; main()"
    )
    assert "explain" in made.stdout
    assert isinstance(app, typer.Typer)
    assert gc.isenabled()


def test_a_driver_starts_within_its_cpu_time() -> None:
    best = float("inf")
    for _ in range(3):
        slow, before = cpu.slowness(), os.times()
        made = run(START)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, spent / max(slow, cpu.slowness()))
    assert "none-such" in made.stderr + made.stdout
    assert best < START_CPU_S, f"{best:.2f} s of CPU time, at most {START_CPU_S} are allowed"
