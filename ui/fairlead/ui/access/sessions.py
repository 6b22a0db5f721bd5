"""Sessions of logged-in viewers, and how often tokens may be tried, kept in this process. Time and randomness are arguments.

A browser has a random value, the server what belongs to it. The value has two parts: one finds the session (by its hash), the other is the
key that the viewer's token is encrypted with (AES-256-GCM). So the token can be reviewed again while its owner asks for pages, and neither
what the server keeps nor the cookie's value alone yields it. A session ends when it was not used for `idle_s`, after `absolute_s`, when its
token ends, and at a logout. There are at most `most`, and `each` of one user: a further one ends that which was used longest ago, of the
user, or of whoever has most (`heaviest`), so that nobody's many take what others have few of.

An address has `BURST` failed attempts, and one more every `AGAIN_S`; all together have `ALL_BURST`. An attempt counts when it begins, and
not any more when it succeeds; so many at once count, too. IPv6 addresses count by their /64, which is what one host has. Behind a proxy that
hides addresses, all viewers have that of the proxy. At most `ADDRESSES_MAX` addresses are remembered; one that is forgotten has what all
together have left.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.kube.limits import Clock

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


BURST = 30
AGAIN_S = 2.0
ALL_BURST = 200
ALL_AGAIN_S = 0.1
ADDRESSES_MAX = 10_000


@dataclass
class _Bucket:
    left: float
    at: float

    def fill(self, now: float, *, most: int, again_s: float) -> None:
        self.left = min(most, self.left + (now - self.at) / again_s)
        self.at = now


class Attempts:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._all = _Bucket(ALL_BURST, clock())
        self._kept: OrderedDict[str, _Bucket] = OrderedDict()

    def begin(self, address: str) -> float:
        """Seconds to wait; 0: the attempt may be made, and counts as failed until `succeeded`."""
        now = self._clock()
        bucket = self._of(address, now)
        bucket.fill(now, most=BURST, again_s=AGAIN_S)
        self._all.fill(now, most=ALL_BURST, again_s=ALL_AGAIN_S)
        if bucket.left < 1:
            return (1 - bucket.left) * AGAIN_S
        if self._all.left < 1:
            return (1 - self._all.left) * ALL_AGAIN_S
        bucket.left -= 1
        self._all.left -= 1
        return 0.0

    def succeeded(self, address: str) -> None:
        bucket = self._of(address, self._clock())
        bucket.left = min(BURST, bucket.left + 1)
        self._all.left = min(ALL_BURST, self._all.left + 1)

    def _of(self, address: str, now: float) -> _Bucket:
        key = network(address)
        bucket = self._kept.get(key)
        if bucket is None:
            bucket = self._kept[key] = _Bucket(BURST, now)
            while len(self._kept) > ADDRESSES_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return bucket


def network(address: str) -> str:
    """What counts as one: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


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
