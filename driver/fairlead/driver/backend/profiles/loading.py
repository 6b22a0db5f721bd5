"""Reads a node profile and turns it into GPUs.

A profile is found by its name beside this module, or by the path of a file. Each error says which field is wrong and
what is valid. UUIDs that a profile leaves out are derived from the node's name, so no two simulated nodes share one.
"""

from __future__ import annotations

import difflib
import re
import threading
import uuid
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.bounded import yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.driver.backend import geometry
from fairlead.driver.backend.profiles.schema import (
    SAME_FIELDS,
    GpuSpec,
    MigProfileSpec,
    MigTable,
    NodeProfile,
    NvLinkSpec,
    to_bytes,
)
from fairlead.driver.backend.types import Gpu, MigProfile, NvLink

_PROFILES = resources.files("fairlead.driver.backend.profiles")
_UUID_SPACE = uuid.UUID("8f0f1f0e-6d1c-5c0a-9a57-2f1a0c1d7e11")
_MIG_AT = re.compile(r"([^@]+)@(\d+)")
_CONVERTING = threading.Lock()
"""msgspec caches a type at its first conversion; two threads that do so at once for one type crash the interpreter."""

T = TypeVar("T")


class ProfileError(ValueError):
    """A profile does not exist, or describes a node that is not possible."""


def known() -> list[str]:
    """The names of the bundled profiles, sorted."""
    return sorted(path.name.removesuffix(".yaml") for path in _PROFILES.iterdir() if path.name.endswith(".yaml"))


def load(name_or_path: str) -> NodeProfile:
    """The bundled profile of that name, or the one in that file. Raises ProfileError."""
    bundled = _PROFILES / f"{name_or_path}.yaml"
    if re.fullmatch(r"[\w-]+", name_or_path) and bundled.is_file():
        return _decode(bundled, NodeProfile)
    path = Path(name_or_path)
    if not path.is_file():
        guess = difflib.get_close_matches(name_or_path, known(), n=1)
        hint = f"did you mean {guess[0]!r}? " if guess else ""
        raise ProfileError(
            f"node profile {name_or_path!r}: neither a profile nor a file; {hint}known profiles: {', '.join(known())}"
        )
    return _decode(path, NodeProfile)


def mig_tables() -> dict[str, tuple[MigProfile, ...]]:
    """The bundled tables of MIG sizes: the profiles by product."""
    names = sorted(path.name.removesuffix(".yaml") for path in (_PROFILES / "mig").iterdir())
    tables = (_mig_table(name) for name in names)
    return {table.product: tuple(spec.to_profile() for spec in table.profiles) for table in tables}


def gpus(profile: NodeProfile, *, node: str) -> list[tuple[Gpu, tuple[tuple[MigProfile, int], ...]]]:
    """Each GPU of the profile, sorted by minor, with its initial MIG devices (profile, start).

    Raises ProfileError when minors, UUIDs or bus IDs repeat, or a MIG device does not fit.
    """
    made = [_gpu(profile, spec, index, node=node) for index, spec in enumerate(profile.gpus)]
    for key in ("minor", "uuid", "pci_bus_id"):
        values = [getattr(gpu, key) for gpu, _ in made if getattr(gpu, key) is not None]
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise ProfileError(f"gpus: {key} {', '.join(twice)} is given to two GPUs; give each its own")
    return sorted(made, key=lambda pair: pair[0].minor)


def _gpu(
    profile: NodeProfile, spec: GpuSpec, index: int, *, node: str
) -> tuple[Gpu, tuple[tuple[MigProfile, int], ...]]:
    if spec.minor is None:
        raise ProfileError(f"gpus[{index}].minor: missing; write the number of its /dev/nvidia<minor>")
    minor = spec.minor
    common = profile.gpu

    def pick(field: str) -> Any:
        own = getattr(spec, field)
        return getattr(common, field) if own is None else own

    table, multiprocessors = _mig(pick("mig"))
    enabled = spec.mig_enabled or common.mig_enabled
    gpu = Gpu(
        minor=minor,
        uuid=spec.uuid or f"GPU-{uuid.uuid5(_UUID_SPACE, f'{node}/{minor}')}",
        memory_bytes=to_bytes(pick("memory_mib")),
        multiprocessors=pick("multiprocessors") or multiprocessors,
        **{field: pick(field) for field in SAME_FIELDS},
        nvlink=_nvlink(profile, pick("nvlink"), minor),
        mig_enabled=enabled if table else None,
        mig_mutable=bool(table) and pick("architecture") not in {None, "Ampere"},
        mig_profiles=table,
    )
    placed: list[tuple[MigProfile, int]] = []
    for position, text in enumerate(spec.mig_devices):
        field = f"gpus[{index}].migDevices[{position}]"
        wanted = _placed(text, table, field)
        if not enabled:
            raise ProfileError(f"{field}: {text!r} needs MIG mode; add migEnabled: true")
        if not geometry.fits(table, placed, wanted):
            raise ProfileError(f"{field}: {text!r} does not fit beside {', '.join(spec.mig_devices[:position]) or '-'}")
        placed.append(wanted)
    return gpu, tuple(placed)


def _mig(table: str | tuple[MigProfileSpec, ...] | None) -> tuple[tuple[MigProfile, ...], int | None]:
    if table is None:
        return (), None
    multiprocessors = None
    if isinstance(table, str):
        decoded = _mig_table(table)
        table, multiprocessors = decoded.profiles, decoded.multiprocessors
    return tuple(spec.to_profile() for spec in table), multiprocessors


@lru_cache(maxsize=32)
def _mig_table(name: str) -> MigTable:
    """Cached, for every GPU of a node names the same. Raises ProfileError."""
    path = _PROFILES / "mig" / f"{name}.yaml"
    if not re.fullmatch(r"[\w-]{1,64}", name) or not path.is_file():
        tables = sorted(p.name.removesuffix(".yaml") for p in (_PROFILES / "mig").iterdir())
        raise ProfileError(f"mig: {name!r} is no table of MIG sizes; known tables: {', '.join(tables)}")
    return _decode(path, MigTable)


def _nvlink(profile: NodeProfile, spec: NvLinkSpec | None, minor: int) -> NvLink | None:
    if spec is None or not spec.links:
        return None
    peers = {peer for island in profile.nvlink_islands if minor in island for peer in island} - {minor}
    return NvLink(version=spec.version, links=spec.links, peers=tuple(sorted(peers)), switched=spec.switched)


def _placed(text: str, table: tuple[MigProfile, ...], field: str) -> tuple[MigProfile, int]:
    match = _MIG_AT.fullmatch(text)
    if match is None:
        raise ProfileError(f"{field}: {text!r} is no MIG device; write <profile>@<start>, such as 1g.10gb@0")
    for profile in table:
        if profile.name == match[1]:
            return profile, int(match[2])
    names = ", ".join(profile.name for profile in table) or "none: this GPU has no MIG"
    raise ProfileError(f"{field}: profile {match[1]!r} is unknown here; known profiles: {names}")


def _decode(path: Traversable, kind: type[T]) -> T:
    try:
        with path.open("rb") as file:
            content = file.read(SMALL.bytes + 1)
        raw = yaml_text.document(content, SMALL)
        with _CONVERTING:
            return msgspec.convert(raw if raw is not None else {}, kind)
    except UnreadableError as error:
        raise ProfileError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path}: {error}") from error
    except (ValueError, TypeError) as error:  # scalars that PyYAML takes for dates and numbers
        if isinstance(error, ProfileError):
            raise
        raise ProfileError(f"{path}: not YAML: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
