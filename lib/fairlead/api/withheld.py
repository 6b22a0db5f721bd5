"""What a node's driver says beside its devices: which it leaves out of its slices and why, and what the apiserver drops.

Where an apiserver drops taints, a tainted device leaves the slices instead; so does a GPU of which MIG devices exist where it drops
counters. Annotations on the first slice of the pool, written in the same generation, say so. **A device that is listed counts as
published with these taints**: nothing new is allocated there, and only NoExecute evicts. An entry `gpu-3` is also of
every MIG device of that GPU.
Example: `gpu.fairlead.dev/withheld: {"gpu-3":[{"key":"gpu.fairlead.dev/gpu-lost","effect":"NoExecute","reason":"it has fallen off
the bus"}]}` and `gpu.fairlead.dev/dropped-fields: counters,taints`.
Who may write the slice may write anything: what is malformed or beyond the bounds is as if it were not there.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

import msgspec

from fairlead.api import names

WITHHELD: Final = f"{names.DRIVER}/withheld"
DROPPED: Final = f"{names.DRIVER}/dropped-fields"
"""Groups of fields that this node needs and that are not kept, in their order, with commas."""

Effect = Literal["NoSchedule", "NoExecute"]
Group = Literal["counters", "taints", "shares"]
"""`counters`: sharedCounters, consumesCounters; `taints`; `shares`: allowMultipleAllocations, requestPolicy."""
GROUPS: Final[tuple[Group, ...]] = ("counters", "taints", "shares")
EFFECTS: Final[tuple[Effect, ...]] = ("NoExecute", "NoSchedule")

NO_COUNTERS: Final = f"{names.DRIVER}/no-counters"
"""The key of a GPU that is withheld for its MIG devices: without counters it cannot be published beside them."""
RELEASING: Final = f"{names.DRIVER}/releasing"
"""The taint of a device that is prepared still for a claim that is gone: its pod was deleted by force, and its containers run on."""

DEVICES_MAX: Final = 128
TAINTS_MAX: Final = 4
REASON_MAX: Final = 160
BYTES_MAX: Final = 64 * 1024

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A DeviceTaint; `reason` is for people."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
    effect: Effect
    value: Annotated[str, msgspec.Meta(max_length=63)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=REASON_MAX)] = ""


Withheld = Mapping[str, tuple[Taint, ...]]
"""By device."""

_decoder = msgspec.json.Decoder(
    Annotated[
        dict[_Name, Annotated[tuple[Taint, ...], msgspec.Meta(min_length=1, max_length=TAINTS_MAX)]],
        msgspec.Meta(max_length=DEVICES_MAX),
    ]
)


def encode(withheld: Withheld) -> str:
    """Within the bounds: what evicts comes before what does not, and reasons are cut off."""
    ranked = sorted(withheld.items(), key=lambda each: (_rank(each[1]), len(each[0]), each[0]))
    kept: dict[str, tuple[Taint, ...]] = {}
    bytes_ = 2
    for device, taints in ranked[:DEVICES_MAX]:
        first = sorted(taints, key=lambda taint: EFFECTS.index(taint.effect))[:TAINTS_MAX]
        cut = tuple(msgspec.structs.replace(taint, reason=taint.reason[:REASON_MAX]) for taint in first)
        bytes_ += len(msgspec.json.encode({device: cut}))
        if bytes_ > BYTES_MAX:
            break
        kept[device] = cut
    return msgspec.json.encode(dict(sorted(kept.items()))).decode()


def _rank(taints: Iterable[Taint]) -> int:
    return min((EFFECTS.index(taint.effect) for taint in taints), default=len(EFFECTS))


def read(annotations: Mapping[str, str]) -> dict[str, tuple[Taint, ...]]:
    """The devices that are withheld, by the annotations of a pool's first slice; none where that cannot be read."""
    text = annotations.get(WITHHELD, "")
    if not text or len(text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        return {}
    try:
        found: dict[str, tuple[Taint, ...]] = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found


def taints_of(withheld: Withheld, device: str) -> tuple[Taint, ...]:
    """Why a device is withheld, by itself or with its GPU; empty where it is not."""
    gpu = device.partition("-mig-")[0]
    return withheld.get(device, ()) + (withheld.get(gpu, ()) if gpu != device else ())


def dropped(annotations: Mapping[str, str]) -> frozenset[Group]:
    """What the apiserver does not keep of what the node needs. Unknown words are left out."""
    words = annotations.get(DROPPED, "")[:256].split(",")
    return frozenset(group for group in GROUPS if group in words)
