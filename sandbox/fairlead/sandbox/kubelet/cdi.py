"""What a container runtime does with CDI device names: look them up and merge the edits.

These edits, not the driver's answer to kubelet, are what a container gets. Reads the spec files of a directory as containerd
does (JSON and YAML, every file, at use), resolves qualified names, and merges the edits of the spec and of each device.
Checks what a runtime would refuse; applies nothing to the machine.
Source: Container Device Interface SPEC.md 0.6.0 and 1.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fairlead.bounded import files, yaml_text
from fairlead.bounded.limits import UnreadableError

_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")


class CdiError(Exception):
    """A name that no spec defines, two specs that define it, or a spec that a runtime would not take."""


@dataclass(frozen=True, kw_only=True)
class Edits:
    """What is added to a container: environment, device nodes by their path in the container, mounts, hooks."""

    cdi_devices: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()  # host path, container path
    hooks: tuple[str, ...] = ()
    applied: tuple[
        Mapping[str, Any], ...
    ] = ()  # the specs' containerEdits as they are written, for a runtime that executes


@dataclass(frozen=True)
class _Device:
    file: Path
    spec_edits: Mapping[str, Any]
    edits: Mapping[str, Any]


def resolve(directory: Path, names: Iterable[str]) -> Edits:
    """The edits of all `vendor/class=device` names together, in the order given, each once. Raises CdiError."""
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        return Edits()
    known = _load(directory)
    env: dict[str, str] = {}
    nodes: dict[str, None] = {}
    mounts: dict[tuple[str, str], None] = {}
    hooks: list[str] = []
    every: list[Mapping[str, Any]] = []
    applied: set[Path] = set()
    for name in wanted:
        found = known.get(name)
        if not found:
            raise CdiError(f"unresolvable CDI device {name}: no spec in {directory} defines it")
        if len(found) > 1:
            files = ", ".join(sorted(each.file.name for each in found))
            raise CdiError(f"unresolvable CDI device {name}: conflicting specs {files}")
        device = found[0]
        parts = [device.edits] if device.file in applied else [device.spec_edits, device.edits]
        applied.add(device.file)
        every += parts
        for edits in parts:
            for each in edits.get("env") or ():
                key, _, value = str(each).partition("=")
                env[key] = value
            for node in edits.get("deviceNodes") or ():
                nodes[str(node["path"])] = None
            for mount in edits.get("mounts") or ():
                mounts[str(mount["hostPath"]), str(mount["containerPath"])] = None
            hooks += [str(hook["path"]) for hook in edits.get("hooks") or ()]
    return Edits(
        cdi_devices=wanted,
        env=env,
        device_nodes=tuple(nodes),
        mounts=tuple(mounts),
        hooks=tuple(hooks),
        applied=tuple(every),
    )


def _load(directory: Path) -> dict[str, list[_Device]]:
    known: dict[str, list[_Device]] = {}
    if not directory.is_dir():
        return known
    for file in sorted(directory.iterdir()):
        if file.suffix not in {".json", ".yaml", ".yml"}:
            continue
        try:
            spec = yaml_text.document(files.read(file))
        except (FileNotFoundError, UnreadableError):  # removed since it was listed
            continue
        try:
            for name, device in _devices(file, spec):
                known.setdefault(name, []).append(device)
        except (KeyError, TypeError, ValueError, CdiError):
            continue  # as a runtime: a broken spec hides its own devices, not those of others
    return known


def _devices(file: Path, spec: Mapping[str, Any]) -> Iterable[tuple[str, _Device]]:
    kind = str(spec["kind"])
    if not _KIND.fullmatch(kind):
        raise CdiError(f"{file}: kind {kind!r} is not vendor/class")
    if not spec.get("cdiVersion"):
        raise CdiError(f"{file}: cdiVersion is missing")
    for device in spec["devices"]:
        if not _DEVICE.fullmatch(str(device["name"])):
            raise CdiError(f"{file}: device name {device['name']!r} is not valid")
        edits = device.get("containerEdits") or {}
        yield f"{kind}={device['name']}", _Device(file, spec.get("containerEdits") or {}, edits)
