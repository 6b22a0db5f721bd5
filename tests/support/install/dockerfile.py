"""The Dockerfile as data: its stages, and the instructions of each in order, with arguments filled in.

Knows the instructions that the Dockerfile has; another one is an error, so that a step is never left out silently.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Step:
    """RUN, COPY or WORKDIR: what changes the files. `environment` and `workdir` are those in force."""

    instruction: str
    arguments: str
    environment: Mapping[str, str]
    workdir: str


@dataclass
class Stage:
    """What one FROM begins. `user`, `entrypoint`, `command`, `environment` and `workdir` are the image's at its end."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def stages(text: str, environment: Mapping[str, str]) -> list[Stage]:
    """`environment` is that of the base image. Raises ValueError on an instruction that is not known here."""
    found: list[Stage] = []
    arguments: dict[str, str] = {}
    for instruction, rest in instructions(text):
        if instruction == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif instruction == "FROM":
            base, _, name = _filled(rest, arguments).partition(" AS ")
            found.append(Stage(base.strip(), name.strip() or str(len(found)), environment=dict(environment)))
        elif not found:
            raise ValueError(f"{instruction} {rest}: stands before the first FROM")
        else:
            _take(found[-1], instruction, rest)
    return found


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each, continued lines joined, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def _take(stage: Stage, instruction: str, rest: str) -> None:
    match instruction:
        case "ENV":
            for word in shlex.split(_filled(rest, stage.environment)):
                name, _, value = word.partition("=")
                stage.environment[name] = value
        case "WORKDIR":
            stage.workdir = rest
            stage.steps.append(Step(instruction, rest, {}, rest))
        case "RUN" | "COPY":
            stage.steps.append(Step(instruction, rest, dict(stage.environment), stage.workdir))
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = tuple(json.loads(rest))
        case "CMD":
            stage.command = tuple(json.loads(rest))
        case "LABEL":
            pass
        case _:
            raise ValueError(f"{instruction} {rest}: not known here; add it to {__name__}")


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], ""), text)
