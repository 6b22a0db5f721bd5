"""The one encoding of a spec as a key of a dict or a set.

Structs that hold dicts (opaque parameters, capacity requests) cannot be hashed, and two equal specs may have been written in
another order. So whatever remembers something by a spec, or by a struct that may hold one, asks here.
Keeps: equal values give equal keys, whatever the order of their dicts; structs keep the order of their fields.
Example: `{"replicas": 2, "strategy": "TimeSlicing"}` and `{"strategy": "TimeSlicing", "replicas": 2}` have one key.
"""

from __future__ import annotations

from typing import Any

import msgspec


def spec_key(value: Any) -> bytes:
    """The key of a struct, or a tuple of structs, that was decoded from JSON or YAML."""
    return msgspec.json.encode(value, order="deterministic")
