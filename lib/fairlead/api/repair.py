"""Repairs of GPUs, as `fairlead repair` and a node's driver exchange them: annotations on a ResourceSlice of the node.

The command writes `request.repair.fairlead.dev/gpu-3` on the first slice of the node's pool; the driver, which watches
its slices anyway, takes the request over into a file on the node, removes the annotation, and writes how far it is as
`state.repair.fairlead.dev/gpu-3` on the same slice. So neither needs a right that it lacks otherwise: the driver writes
its own slices, and who may write slices could taint every device.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from fairlead.api import names

REQUEST_PREFIX: Final = f"request.repair.{names.API_GROUP}/"
STATE_PREFIX: Final = f"state.repair.{names.API_GROUP}/"
TAINT: Final = f"{names.DRIVER}/repair"
DRAIN_TAINT: Final = f"{names.DRIVER}/drained"
"""Of a DeviceTaintRule, where `fairlead device drain` writes those."""
FIRST_SLICE: Final = f"00000-{names.DRIVER}-"
"""How the name of the slice begins that has these annotations."""

Action = Literal["repair", "drain", "cancel"]
"""`drain` only taints, until it is cancelled or a repair takes the GPU over."""
Phase = Literal["draining", "resetting", "restoring", "verifying", "done", "failed", "refused", "cancelled", "drained"]
UNDER_WAY: Final[frozenset[Phase]] = frozenset({"draining", "resetting", "restoring", "verifying"})
CLOSED: Final[frozenset[Phase]] = frozenset({"resetting", "restoring", "verifying", "failed"})
"""Phases in which no claim is prepared on the GPU."""
TAINTED: Final[frozenset[Phase]] = UNDER_WAY | CLOSED | {"drained"}
REVOCABLE: Final[frozenset[Phase]] = frozenset({"draining", "drained"})
"""Phases that a request with the action `cancel` ends: nothing was done to the GPU."""
BYTES_MAX: Final = 1024

T = TypeVar("T")
_GPU = re.compile(r"gpu-(\d{1,3})")


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`id` distinguishes two requests for one GPU."""

    id: str
    action: Action = "repair"


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far a repair is. `since` is RFC 3339; `together` are the GPUs that are reset with it, itself included."""

    id: str
    phase: Phase
    since: str
    message: str = ""
    together: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    """While it drains: what holds the GPUs, as claims (namespace/name) and processes."""


def minor_of(device: str) -> int | None:
    """3 of `gpu-3`; None of anything else."""
    match = _GPU.fullmatch(device)
    return int(match[1]) if match else None


def encode(value: Request | State) -> str:
    return msgspec.json.encode(value).decode()


def requests(annotations: Mapping[str, str]) -> dict[str, Request]:
    """The requests by device, as `gpu-3`. What is no request is left out: whoever writes the slice may write anything."""
    return _decoded(annotations, REQUEST_PREFIX, Request)


def states(annotations: Mapping[str, str]) -> dict[str, State]:
    """The states of repairs by device, as `gpu-3`."""
    return _decoded(annotations, STATE_PREFIX, State)


def first_slice(slices: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The slice, of one node's as the API has them, that carries the annotations: the first of the newest generation."""
    mine = [
        each
        for each in slices
        if each["spec"].get("driver") == names.DRIVER
        and str(each["metadata"].get("name", "")).startswith(FIRST_SLICE)
        and not each["metadata"].get("deletionTimestamp")
    ]
    return max(mine, key=lambda each: each["spec"]["pool"].get("generation", 0), default=None)


def _decoded(annotations: Mapping[str, str], prefix: str, kind: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for key, text in annotations.items():
        device = key.removeprefix(prefix)
        if not key.startswith(prefix) or minor_of(device) is None or len(text) > 16 * BYTES_MAX:
            continue
        try:
            found[device] = msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, RecursionError):
            continue
    return found
