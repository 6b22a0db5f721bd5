"""Authentication: bearer tokens that the sandbox issued, each for one user.

Every program has its own identity, as in a cluster. There are no client certificates, and anonymous access is to the health
endpoints only. A token for other audiences than the apiserver's is good for a TokenReview that names one of them, and for nothing
else; it expires, which the apiserver's own tokens here do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from fairlead.sandbox.apiserver.kinds.request import UserInfo

AUTHENTICATED = "system:authenticated"
API_AUDIENCE = "https://kubernetes.default.svc"
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True)
class Bound:
    """A token for other audiences."""

    user: UserInfo
    audiences: tuple[str, ...]
    ends: datetime


class Tokens:
    """Tokens and their users. The same user and groups get the same token again, but for other audiences a new one each time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._users: dict[str, UserInfo] = {}
        self._tokens: dict[tuple[object, ...], str] = {}
        self._bound: dict[str, Bound] = {}

    def issue(
        self, user: str, groups: Sequence[str] = (), extra: Mapping[str, Sequence[str]] | None = None, uid: str = ""
    ) -> str:
        """A token for `user`. Service accounts get their groups, all users `system:authenticated`."""
        info = identity(user, groups, extra or {}, uid)
        key = (info.name, info.groups, info.uid, tuple(sorted(info.extra.items())))
        if key not in self._tokens:
            token = f"fairlead-{self._random.getrandbits(160):040x}"
            self._tokens[key] = token
            self._users[token] = info
        return self._tokens[key]

    def user_of(self, authorization: str) -> UserInfo | None:
        """The user of an Authorization header; anonymous without one; None for a token that is not known."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self.user_of_token(token.strip())

    def user_of_token(self, token: str) -> UserInfo | None:
        return self._users.get(token)

    def bind(self, user: UserInfo, audiences: Sequence[str], ends: datetime) -> str:
        """A token for these audiences."""
        token = f"fairlead-{self._random.getrandbits(160):040x}"
        self._bound[token] = Bound(user, tuple(audiences), ends)
        return token

    def review(self, token: str, audiences: Sequence[str], now: datetime) -> tuple[UserInfo, tuple[str, ...]] | None:
        """The user of a token, and which of the audiences it is for; none are asked for: the apiserver's."""
        asked = tuple(audiences) or (API_AUDIENCE,)
        bound = self._bound.get(token)
        if bound is not None and now >= bound.ends:
            return None
        user, own = (bound.user, bound.audiences) if bound is not None else (self._users.get(token), (API_AUDIENCE,))
        shared = tuple(each for each in asked if each in own)
        return (user, shared) if user is not None and shared else None


def identity(user: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]], uid: str = "") -> UserInfo:
    found = list(groups)
    account = SERVICE_ACCOUNT.fullmatch(user)
    if account:
        found += ["system:serviceaccounts", f"system:serviceaccounts:{account.group(1)}"]
    if user.startswith("system:node:"):
        found.append("system:nodes")
    found.append(AUTHENTICATED)
    return UserInfo(user, tuple(dict.fromkeys(found)), uid, {k: tuple(v) for k, v in extra.items()})
