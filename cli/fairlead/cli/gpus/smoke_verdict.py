"""What a container of `fairlead smoke` saw, beside what was allocated. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`ok`; `detail` says what was wrong, or what was checked. `bus_gb_s` is NCCL's mean bus bandwidth, in GB/s."""

    ok: bool
    detail: str
    bus_gb_s: float | None = None


def verdict(message: str, allocated: Mapping[str, str]) -> Verdict:
    """`message` is the container's termination message, `allocated` the UUIDs by device's name."""
    seen = [line.partition("=")[::2] for line in message.splitlines()]
    variables = {value for key, value in seen if key.startswith("FAIRLEAD_DEVICE_")}
    nodes = [value for key, value in seen if key == "node"]
    listed = {value for key, value in seen if key == "smi"}
    wanted = set(allocated.values())
    names = {uuid: name for name, uuid in allocated.items()}

    def named(uuids: set[str]) -> str:
        return ", ".join(sorted(names.get(uuid, uuid) for uuid in uuids))

    wrong = [f"{key.removesuffix('-failed')}: {value.strip()}" for key, value in seen if key.endswith("-failed")]
    if variables != wanted:
        wrong.append(_difference("its environment has", variables, wanted, named))
    if listed:
        # Of a MIG device nvidia-smi lists the GPU, too.
        mig = any(uuid.startswith("MIG-") for uuid in wanted)
        visible = {uuid for uuid in listed if uuid.startswith("MIG-")} if mig else listed
        if visible != wanted:
            wrong.append(_difference("nvidia-smi lists", visible, wanted, named))
    if wrong:
        return Verdict(ok=False, detail="; ".join(wrong))
    checked = ["environment"] + (["nvidia-smi"] if listed else []) + (["device nodes"] if nodes else [])
    checked += ["command"] if ("also", "ok") in seen else []
    return Verdict(ok=True, detail=f"as allocated: {', '.join(checked)}", bus_gb_s=_bandwidth(seen))


def _difference(what: str, seen: set[str], wanted: set[str], named: object) -> str:
    assert callable(named)
    parts = [f"not {named(wanted - seen)}"] if wanted - seen else []
    parts += [f"{named(seen - wanted)}, which is not allocated"] if seen - wanted else []
    return f"{what} {' and '.join(parts)}"


def _bandwidth(seen: list[tuple[str, str]]) -> float | None:
    for key, value in seen:
        if key == "busbw":
            try:
                return float(value)
            except ValueError:
                return None
    return None
