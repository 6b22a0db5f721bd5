"""What the cluster says of a token, and of a user's rights: TokenReview and SubjectAccessReview, remembered for a short time.

A yes counts for `YES_S`, a no for `NO_S`: a right that is given shows at once, one that is taken away within a minute. While the apiserver
does not answer, an answer counts for `AWAY_S`: the pages then show what they knew, to those who saw it already. What is remembered is found by
a keyed hash of the token, or of the user and the right; it is bounded, and what was used longest ago goes first.
At most `AT_ONCE` reviews are under way; the same question by several is asked once.
Source: authentication.k8s.io/v1 TokenReview ("a client that sets audiences should validate that a compatible audience identifier is
returned in status.audiences"), authorization.k8s.io/v1 SubjectAccessReview.

The scope of a user is asked for the namespaces that pages could show something of, now or in the ledger; a list of all namespaces in one
question first. With many namespaces a no counts for longer: `NO_EACH_S` for each, so that a viewer costs the apiserver at most ten questions
a second however many tenants there are. The ledger is read beside, now and then: while it is slow or away, nobody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube import errors
from fairlead.kube.limits import Clock, Sleep
from fairlead.kube.nulls import Decoder
from fairlead.kube.resources import GANGS, NODES, QUEUES, Resource
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import Scope, namespaces_with_gangs
from fairlead.ui.reading.cluster import Source

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
        count: Callable[[str, str], None] = lambda *_: None,
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


AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user as a TokenReview names it. `extra`: what an authenticator adds, for authorizers that read it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Right:
    """The right to list objects of a kind; `namespace` "": in all namespaces, or of a kind that has none."""

    resource: Resource[Any]
    namespace: str = ""

    def attributes(self) -> dict[str, str]:
        """`resourceAttributes` of a SubjectAccessReview."""
        kind = self.resource
        found = {"group": kind.group, "version": kind.version, "resource": kind.plural, "verb": "list"}
        return found | ({"namespace": self.namespace} if self.namespace else {})


NO_EACH_S = 0.1
NO_MAX_S = 300.0
Namespaces = Callable[[], Awaitable[Collection[str]]]


async def scope_of(user: User, reviews: Reviews, namespaces: Namespaces) -> Scope:
    """Raises ReviewError where the cluster does not answer."""
    everywhere, nodes, queues = await asyncio.gather(
        *(reviews.allowed(user, right) for right in (Right(GANGS), Right(NODES), Right(QUEUES)))
    )
    if everywhere:
        return Scope(namespaces=None, cluster=nodes, queues=queues)
    names = sorted(each for each in await namespaces() if each)
    no_s = min(NO_MAX_S, max(NO_S, NO_EACH_S * len(names)))
    answers = await asyncio.gather(*(reviews.allowed(user, Right(GANGS, name), no_s=no_s) for name in names))
    seen = frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)
    return Scope(namespaces=seen, cluster=nodes, queues=queues)


log = logging.getLogger(__name__)
AGAIN_S = 60.0


class KnownNamespaces:
    """Call it for the namespaces. `past` reads those of the ledger, and raises LedgerError; None: there is none."""

    def __init__(self, source: Source, past: Namespaces | None = None) -> None:
        self._source = source
        self._past = past
        self._of: Facts | None = None
        self._now: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()

    async def __call__(self) -> Collection[str]:
        """Raises NotReadError where the cluster was never read."""
        facts = await self._source.facts()
        if self._of is not facts:
            self._of, self._now = facts, namespaces_with_gangs(facts)
        return self._now | self._before

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Reads the past until it is cancelled."""
        while self._past is not None:
            try:
                self._before = frozenset(await self._past())
            except LedgerError as error:
                log.warning("namespaces of the past: %s; trying again in %.0f s", error, AGAIN_S)
            await sleep(AGAIN_S)


def of_ledger(where: str) -> Namespaces:
    """`where`: as of `open_reader`."""

    def read() -> Collection[str]:
        with contextlib.closing(open_reader(where)) as reader:
            return reader.namespaces()

    return lambda: asyncio.to_thread(read)
