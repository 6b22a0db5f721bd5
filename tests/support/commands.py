"""The command line, called in this process.

Typer builds all commands anew whenever its application is called, a tenth of a second each time; here they are built once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from fairlead.cli.main import app

_built = functools.cache(typer.main.get_command)


def invoke(words: Sequence[str], *, env: Mapping[str, str] | None = None, **more: Any) -> Result:
    """What `fairlead WORDS` printed, and its exit code. `more`: see `CliRunner.invoke`."""
    with mock.patch.object(typer.testing, "_get_command", _built):
        return CliRunner().invoke(app, words, env=env, **more)


def call(words: Sequence[str]) -> None:
    """Run `fairlead WORDS`; what it raises, its exit included, is the caller's."""
    _built(app)(list(words), standalone_mode=False)
