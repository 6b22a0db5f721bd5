"""How a program is started: as the whole command says it, for less CPU time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import cpu

ROOT = Path(__file__).parents[2]
START = "import sys; sys.argv = ['fairlead', 'driver', '--node-name', 'n', '--backend', 'none-such']; from fairlead.cli.main import main; main()"
START_CPU_S = 0.85
"""Of the driver, to where it looks for its hardware, on the machine that bounds are meant for, where it took 0.68 s (1.0 among all commands)."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)


def test_no_other_command_is_imported_and_garbage_is_collected_once_it_runs() -> None:
    said = (
        "import gc, sys; sys.argv = ['fairlead', 'controller', '--help']; from fairlead.cli import main\n"
        "try: main.main()\nexcept SystemExit: pass\n"
        "print(*sorted(m.removeprefix('fairlead.cli.') for m in sys.modules if m.startswith('fairlead.cli.')), gc.isenabled())"
    )
    assert (
        run(said).stdout.splitlines()[-1]
        == "command completion contexts main options printer programs programs.controller False"
    )
    made = run(
        "import asyncio, gc\nfrom fairlead.cli.options import Logged\nfrom fairlead.cli.serve import serve\n"
        "async def program(options, *, ready): print(gc.isenabled(), gc.get_freeze_count() > 0)\n"
        "gc.disable(); serve(program, Logged())"
    )
    assert made.stdout.split() == ["True", "True"], made.stderr


@pytest.mark.slow
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
