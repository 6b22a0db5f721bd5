"""Values of the ledger as they stand in columns, and back."""

from __future__ import annotations

import json
import uuid

from fairlead.history.ledger.entries import Measure

_TEXT = b"\0text:"  # before a UID that is no UUID in its usual form; no UUID is that long


def uid_bytes(uid: str) -> bytes:
    """16 bytes instead of 36, in the table and in its index, for the UIDs that Kubernetes writes."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        found = None
    return found.bytes if found is not None and str(found) == uid else _TEXT + uid.encode().ljust(16)


def uid_text(stored: bytes) -> str:
    return str(uuid.UUID(bytes=stored)) if len(stored) == 16 else stored.removeprefix(_TEXT).rstrip().decode()


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(json.loads(text).items()))


def measure_values(measure: Measure) -> tuple[int, str, str, str]:
    return measure.share_ppm, measure.flavor, str(measure.amount), measure.capacity_type or ""
