"""Names of MIG profiles: as NVML writes them, and as the device plugin writes them in a resource's name.

A resource's name has no plus, so a dot stands for it; a minus stays. Which dots those are cannot be said by rule, since an
attribute may have a dot of its own: it is read by the table of attributes.

| NVML | resource |
|---|---|
| `1g.10gb+me` | `mig-1g.10gb.me` |
| `1g.24gb+me.all` | `mig-1g.24gb.me.all` |
| `1g.24gb-me` | `mig-1g.24gb-me` |
| `1g.24gb+gfx` | `mig-1g.24gb.gfx` |

Sources: NVIDIA/go-nvlib (MIG profiles, their attributes), NVIDIA/k8s-device-plugin (resource names).
"""

from __future__ import annotations

import re
from typing import Final, Literal

MigStrategy = Literal["none", "single", "mixed"]
"""How the device plugin shows MIG devices, as its flag mig-strategy."""

ATTRIBUTES: Final = ("me.all", "me", "gfx")
"""Media engines (all of a GPU's, one, with a minus none) and graphics; an attribute before the one that it begins with."""

_SIZE = r"(?:[1-9][0-9]?c\.)?[1-9][0-9]?g\.[1-9][0-9]*gb"
_ATTRIBUTE = "(?:" + "|".join(map(re.escape, ATTRIBUTES)) + ")"
_PROFILE = re.compile(rf"{_SIZE}(?:[+-]{_ATTRIBUTE})*")
_IN_RESOURCE = re.compile(rf"(?P<size>{_SIZE})(?P<attributes>(?:[.-]{_ATTRIBUTE})*)")
_SIGNED = re.compile(rf"([.-])({_ATTRIBUTE})")


def is_profile(text: str) -> bool:
    """Whether NVML could write a profile so."""
    return _PROFILE.fullmatch(text) is not None


def is_compute_instance(text: str) -> bool:
    """Whether it is a profile's part, such as `1c.3g.20gb`: a compute instance that does not fill its GPU instance."""
    return is_profile(text) and "c." in text.partition("g.")[0]


def in_resource(profile: str) -> str:
    """`1g.10gb.me` for `1g.10gb+me`."""
    return profile.replace("+", ".")


def of_resource(text: str) -> str | None:
    """The inverse of `in_resource`; None for what names no profile."""
    found = _IN_RESOURCE.fullmatch(text)
    if found is None:
        return None
    signed = ((sign.replace(".", "+"), attribute) for sign, attribute in _SIGNED.findall(found["attributes"]))
    return found["size"] + "".join(sign + attribute for sign, attribute in signed)
