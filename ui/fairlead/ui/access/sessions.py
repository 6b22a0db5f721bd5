"""Sessions of logged-in viewers, kept in this process: a browser has a random value, the server what belongs to it.

The value has two parts: one finds the session (by its hash), the other is the key that the viewer's token is encrypted with (AES-256-GCM).
So the token can be reviewed again while its owner asks for pages, and neither what the server keeps nor the cookie's value alone yields it.
A session ends when it was not used for `idle_s`, after `absolute_s`, when its token ends, and at a logout. There are at most `most`, and
`each` of one user: a further one ends that which was used longest ago, of the user, or of whoever has most (`shares`). Time and randomness are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.kube.limits import Clock
from fairlead.ui.access.shares import heaviest, party

ID_BYTES = 24
KEY_BYTES = 32
NONCE_BYTES = 12
IDLE_S = 3600.0
ABSOLUTE_S = 12 * 3600.0
MOST = 5_000
EACH = 20


@dataclass(kw_only=True)
class _Session:
    user: str
    sealed: bytes
    begun: float
    used: float
    ends: float


class Sessions:
    """`clock` and `ends`: seconds of one clock, such as unix time."""

    def __init__(
        self,
        *,
        clock: Clock,
        random: Callable[[int], bytes] = os.urandom,
        idle_s: float = IDLE_S,
        absolute_s: float = ABSOLUTE_S,
        most: int = MOST,
        each: int = EACH,
    ) -> None:
        self._clock = clock
        self._random = random
        self._idle_s = idle_s
        self._absolute_s = absolute_s
        self._most = most
        self._each = each
        self._kept: OrderedDict[bytes, _Session] = OrderedDict()  # used longest ago first

    def begin(self, user: str, token: str, *, ends: float | None = None) -> str:
        """The cookie's value. `ends`: when the token does; None: not known."""
        now = self._clock()
        self._forget(now)
        own = [key for key, session in self._kept.items() if session.user == user]
        for key in own[: max(0, len(own) + 1 - self._each)]:
            del self._kept[key]
        while len(self._kept) >= self._most:
            loses = heaviest((party(session.user) for session in self._kept.values()), party(user))
            of_it = (key for key, session in self._kept.items() if party(session.user) == loses)
            del self._kept[next(of_it, next(iter(self._kept)))]
        found, key = self._random(ID_BYTES), self._random(KEY_BYTES)
        nonce = self._random(NONCE_BYTES)
        self._kept[_hash(found)] = _Session(
            user=user,
            sealed=nonce + AESGCM(key).encrypt(nonce, token.encode(), found),
            begun=now,
            used=now,
            ends=min(now + self._absolute_s, now + self._absolute_s if ends is None else ends),
        )
        return base64.urlsafe_b64encode(found + key).decode().rstrip("=")

    def token(self, value: str) -> str | None:
        """The token of the session that the cookie's value belongs to, which counts as use; None where there is none any more."""
        parts = _parts(value)
        if parts is None:
            return None
        found, key = parts
        name, now = _hash(found), self._clock()
        session = self._kept.get(name)
        if session is None:
            return None
        if self._over(session, now):
            del self._kept[name]
            return None
        try:
            token = AESGCM(key).decrypt(session.sealed[:NONCE_BYTES], session.sealed[NONCE_BYTES:], found).decode()
        except InvalidTag:
            return None
        session.used = now
        self._kept.move_to_end(name)
        return token

    def end(self, value: str) -> None:
        """Ends the session; a value whose key is wrong ends it, too: who knows the first part may end it, and no more."""
        parts = _parts(value)
        if parts is not None:
            self._kept.pop(_hash(parts[0]), None)

    def __len__(self) -> int:
        self._forget(self._clock())
        return len(self._kept)

    def _over(self, session: _Session, now: float) -> bool:
        return now >= session.ends or now - session.used >= self._idle_s

    def _forget(self, now: float) -> None:
        for key in [key for key, session in self._kept.items() if self._over(session, now)]:
            del self._kept[key]


def _parts(value: str) -> tuple[bytes, bytes] | None:
    if len(value) > 2 * (ID_BYTES + KEY_BYTES) or not value.isascii():
        return None
    try:
        both = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return (both[:ID_BYTES], both[ID_BYTES:]) if len(both) == ID_BYTES + KEY_BYTES else None


def _hash(found: bytes) -> bytes:
    return hashlib.sha256(found).digest()
