"""What the cluster says of a token, and of a user's rights: TokenReview and SubjectAccessReview, remembered for a short time.

A yes counts for `YES_S`, a no for `NO_S`: a right that is given shows at once, one that is taken away within a minute. While the apiserver
does not answer, an answer counts for `AWAY_S`: the pages then show what they knew, to those who saw it already. What is remembered is found by
a keyed hash of the token, or of the user and the right; it is bounded, and what was used longest ago goes first.
At most `AT_ONCE` reviews are under way; the same question by several is asked once.
Source: authentication.k8s.io/v1 TokenReview ("a client that sets audiences should validate that a compatible audience identifier is
returned in status.audiences"), authorization.k8s.io/v1 SubjectAccessReview.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fairlead.kube import errors
from fairlead.kube.limits import Clock
from fairlead.kube.nulls import Decoder
from fairlead.ui.access.users import Right, User

T = TypeVar("T")
YES_S = 60.0
NO_S = 5.0
AWAY_S = 300.0
AT_ONCE = 32
ANSWER_S = 10.0
TOKENS_MAX = 10_000
RIGHTS_MAX = 200_000
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ReviewError(Exception):
    """The apiserver did not answer a review; the message is for the user."""


class Asked(Protocol):
    """The part of a client that reviews need."""

    async def request(self, method: str, path: str, *, body: Any = None) -> bytes: ...


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_tokens = Decoder(_TokenReview)
_accesses = Decoder(_AccessReview)


@dataclass(frozen=True)
class _Known(Generic[T]):
    answer: T
    yes: bool
    at: float


class _Answers(Generic[T]):
    """Questions by key, each asked once at a time, with the answers of before."""

    def __init__(self, *, most: int, clock: Clock, count: Callable[[str], None]) -> None:
        self._most = most
        self._clock = clock
        self._count = count
        self._known: OrderedDict[bytes, _Known[T]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[T]] = {}

    async def get(self, key: bytes, ask: Callable[[], Awaitable[T]], *, yes: Callable[[T], bool], no_s: float) -> T:
        known, now = self._known.get(key), self._clock()
        if known is not None:
            self._known.move_to_end(key)
            if now - known.at < (YES_S if known.yes else no_s):
                return known.answer
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, ask, yes))
            task.add_done_callback(partial(self._asked, key))
        try:
            return await asyncio.shield(task)
        except ReviewError:
            if known is not None and now - known.at < AWAY_S:
                return known.answer
            raise

    def is_yes(self, key: bytes) -> bool:
        known = self._known.get(key)
        return known is not None and known.yes and self._clock() - known.at < YES_S

    def _asked(self, key: bytes, task: asyncio.Task[T]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # each request that waited has it; those that went away do not need it

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[T]], yes: Callable[[T], bool]) -> T:
        try:
            answer = await ask()
        except ReviewError:
            self._count("failed")
            raise
        positive = yes(answer)
        self._count("yes" if positive else "no")
        self._known[key] = _Known(answer, positive, self._clock())
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return answer

    def __len__(self) -> int:
        return len(self._known)


def _uncounted(kind: str, result: str) -> None:
    return


class Reviews:
    """`audiences`: a token must be made for one of them. `cluster_tokens`: or for the apiserver itself. `count`: each answer, by
    kind (token, access) and result (yes, no, failed).
    """

    def __init__(
        self,
        client: Asked,
        *,
        audiences: tuple[str, ...],
        cluster_tokens: bool = False,
        clock: Clock,
        count: Callable[[str, str], None] = _uncounted,
    ) -> None:
        self._client = client
        self._audiences = audiences
        self._cluster_tokens = cluster_tokens
        self._key = secrets.token_bytes(32)
        self._free = asyncio.Semaphore(AT_ONCE)
        self._users: _Answers[User | None] = _Answers(
            most=TOKENS_MAX, clock=clock, count=lambda result: count("token", result)
        )
        self._rights: _Answers[bool] = _Answers(
            most=RIGHTS_MAX, clock=clock, count=lambda result: count("access", result)
        )

    async def user(self, token: str) -> User | None:
        """The token's user; None where it is not accepted. Raises ReviewError."""
        return await self._users.get(
            self._hash(token), lambda: self._review(token), yes=lambda user: user is not None, no_s=NO_S
        )

    def accepted_lately(self, token: str) -> bool:
        """Whether `user` answers without a question, and with a user."""
        return self._users.is_yes(self._hash(token))

    async def allowed(self, user: User, right: Right, *, no_s: float = NO_S) -> bool:
        """Raises ReviewError."""
        key = self._hash(repr((user, right)))
        return await self._rights.get(key, lambda: self._access(user, right), yes=bool, no_s=no_s)

    def _hash(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()

    async def _review(self, token: str) -> User | None:
        found = await self._review_for(token, self._audiences) if self._audiences else None
        if found is None and self._cluster_tokens:
            found = await self._review_for(token, ())
        return found

    async def _review_for(self, token: str, audiences: tuple[str, ...]) -> User | None:
        spec: dict[str, Any] = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
        status = _tokens.decode(await self._post(TOKEN_REVIEWS, "TokenReview", "authentication.k8s.io/v1", spec)).status
        info = status.user
        if not status.authenticated or not info.username or (audiences and not set(audiences) & set(status.audiences)):
            return None
        return User(
            name=info.username, uid=info.uid, groups=info.groups, extra=tuple(sorted(info.extra.items()))
        )  # fmt: skip

    async def _access(self, user: User, right: Right) -> bool:
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": list(user.groups),
            "resourceAttributes": right.attributes(),
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        answer = await self._post(ACCESS_REVIEWS, "SubjectAccessReview", "authorization.k8s.io/v1", spec)
        return bool(_accesses.decode(answer).status.allowed)

    async def _post(self, path: str, kind: str, version: str, spec: dict[str, Any]) -> bytes:
        body = {"apiVersion": version, "kind": kind, "spec": spec}
        try:
            async with self._free, asyncio.timeout(ANSWER_S):
                return await self._client.request("POST", path, body=body)
        except errors.Forbidden as error:
            raise ReviewError(
                f"this server may not ask for a {kind}: its ServiceAccount lacks create on {path.rpartition('/')[2]}"
            ) from error
        except (errors.ApiError, TimeoutError) as error:
            raise ReviewError(
                f"the cluster does not answer a {kind}: {error or f'not within {ANSWER_S:g} s'}"
            ) from error
