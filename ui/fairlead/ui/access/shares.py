"""Whose something of the server's counts as: whoever has most loses first, so that nobody's many take what others have few of. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_ACCOUNT = "system:serviceaccount:"


def party(user: str) -> str:
    """A user; of service accounts the namespace, since who may create one there may create hundreds."""
    if user.startswith(_ACCOUNT):
        return f"system:serviceaccounts:{user.removeprefix(_ACCOUNT).partition(':')[0]}"
    return user


def heaviest(parties: Iterable[str], newcomer: str) -> str:
    """Which loses one where there is no room for the newcomer's, which counts; it comes first among equals."""
    counts = Counter(parties)
    counts[newcomer] += 1
    most = max(counts.values())
    return newcomer if counts[newcomer] == most else next(each for each, count in counts.items() if count == most)
