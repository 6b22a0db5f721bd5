"""What a token says of itself, unverified: for hints to its owner, and for when a token that the cluster accepted ends. Pure.

Nothing is decided by it: whether a token is accepted is the cluster's to say (TokenReview).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

TOKEN_MAX = 16_000


def claims(token: str) -> dict[str, Any]:
    """The payload of a JSON Web Token; {} for what is none."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_MAX:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def ends(token: str) -> float | None:
    """Unix seconds; None where it says nothing."""
    found = claims(token).get("exp")
    try:
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
    except OverflowError:
        return None


def hint(token: str, audiences: Sequence[str], *, cluster_tokens: bool, now: float) -> str:
    """Why it may have been refused, in a sentence; "" where it does not say."""
    over = ends(token)
    if over is not None and over <= now:
        try:
            return f"it expired at {datetime.fromtimestamp(over, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (OverflowError, ValueError, OSError):
            return "it has expired"
    said = claims(token).get("aud")
    own = (
        [said]
        if isinstance(said, str)
        else [each for each in said if isinstance(each, str)]
        if isinstance(said, list)
        else []
    )
    if own and not cluster_tokens and not set(own) & set(audiences):
        return f"it is made for {', '.join(own)[:200]}, and this server accepts tokens for {' or '.join(audiences)}"
    return ""
