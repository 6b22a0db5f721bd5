"""Leader election by a coordination.k8s.io Lease: at most one leader, and a standby that takes over within seconds.

Invariants:
- retry < renew deadline < duration: a leader that cannot renew stops (at the deadline) before another may start (after the
  duration). With 2, 10 and 15 s there are 5 s between the two.
- A lease of another holder expires when it was seen unchanged for its duration on our monotonic clock; the wall clocks of two
  machines are never compared.
- Every write carries a resourceVersion, so two candidates cannot both acquire.
The caller does its work while it holds the lease, stops when `lost` is set, and tests `held` before each write.
Source: client-go leaderelection.go.
"""

import asyncio
import contextlib
import logging
import time
from random import Random
from typing import Any, NamedTuple, Self

from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client
from fairlead.kube.coordination import Lease
from fairlead.kube.limits import Clock, Sleep
from fairlead.kube.resources import LEASES

log = logging.getLogger(__name__)


class LeaseTerms(NamedTuple):
    """Seconds. `retry_s`: between renewals. `poll_s`: between looks at a lease that another holds."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0
    poll_s: float = 2.0


DEFAULT_TERMS = LeaseTerms()


class LeaderLease:
    """`async with lease:` waits until the lease is acquired, renews it inside, and releases it at the end."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        terms: LeaseTerms = DEFAULT_TERMS,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        """Raises ValueError where two could lead by these terms."""
        if not terms.retry_s < terms.renew_deadline_s < terms.duration_s:
            raise ValueError(
                f"lease {namespace}/{name}: retry {terms.retry_s} s < renew deadline {terms.renew_deadline_s} s "
                f"< duration {terms.duration_s} s must hold, else two could lead"
            )
        self.lost = asyncio.Event()
        self.identity = identity
        self.holder = ""  # as last seen
        self.transitions: int | None = None  # once acquired: how often it had changed hands, this time included
        self._client = client
        self._namespace = namespace
        self._name = name
        self._terms = terms
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter
        self._seen: tuple[str, float] | None = None  # resourceVersion, and since when on our clock
        self._version = ""
        self._renewed_at = float("-inf")
        self._leading = False
        self._renewal: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether the last renewal is recent enough that no other candidate can have acquired the lease."""
        return self._leading and self._clock() - self._renewed_at < self._terms.renew_deadline_s

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def acquire(self) -> None:
        """Waits until the lease is acquired, without a limit; then renews it in the background."""
        holder = None
        while not await self._attempt():
            if self.holder != holder:
                holder = self.holder
                log.info("lease %s/%s is held by %s; waiting for it", self._namespace, self._name, holder)
            await self._sleep(self._terms.poll_s * (1 + 0.2 * self._random.random()))
        self._leading = True
        self.lost.clear()
        self._renewal = asyncio.create_task(self._renew(), name=f"renew {self._name}")
        log.info("lease %s/%s: acquired by %s", self._namespace, self._name, self.identity)

    async def release(self) -> None:
        """Stops renewing and clears the holder, so that a standby need not wait for the lease to expire."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
            self._renewal = None
        if not self._leading:
            return
        self._leading = False
        try:
            await self._clear_holder()
        except errors.ApiError as error:  # it expires by itself
            log.info("lease %s/%s: not released: %s", self._namespace, self._name, error)
        finally:
            self.lost.set()

    async def _clear_holder(self) -> None:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": timestamps.micro(self._wall())}
        try:
            await self._write(spec)
        except errors.Conflict:  # a renewal was cancelled on its way, and arrived
            if not await self._still_ours():
                raise
            await self._write(spec)

    def abandon(self) -> None:
        """Stops leading without releasing the lease: a write of ours may still arrive, so the lease has to expire."""
        self._leading = False
        self.lost.set()

    async def _renew(self) -> None:
        while not self.lost.is_set():
            await self._sleep(self._terms.retry_s)
            began = self._clock()
            try:
                async with asyncio.timeout(self._terms.renew_deadline_s):
                    await self._write({"renewTime": timestamps.micro(self._wall())})
                late_s = self._clock() - self._renewed_at
                self._renewed_at = began
                if late_s < self._terms.renew_deadline_s:
                    continue
                # For a moment it was not held: what was refused then is left half done, and only a new term looks for that.
                log.error("lease %s/%s: renewed after %.0f s, too late", self._namespace, self._name, late_s)
                self.lost.set()
                return
            except errors.Conflict:
                if await self._still_ours():
                    continue
                log.error("lease %s/%s: lost to %s", self._namespace, self._name, self.holder)
                break
            except errors.NotFound:
                log.error("lease %s/%s: lost: it was deleted", self._namespace, self._name)
                break
            except (errors.ApiError, TimeoutError) as error:
                log.warning("lease %s/%s: not renewed: %s", self._namespace, self._name, error)
            if self._clock() - self._renewed_at >= self._terms.renew_deadline_s:
                log.error(
                    "lease %s/%s: lost: not renewed for %.0f s",
                    self._namespace,
                    self._name,
                    self._terms.renew_deadline_s,
                )
                break
        self._leading = False
        self.lost.set()

    async def _still_ours(self) -> bool:
        """Whether a conflict came from a write of ours whose answer was lost, and not from another holder."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except errors.ApiError:
            return self._clock() - self._renewed_at < self._terms.renew_deadline_s
        self._observe(lease)
        if self.holder == self.identity:
            self._version = lease.metadata.resource_version
            return True
        return False

    async def _attempt(self) -> bool:
        began = self._clock()
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except errors.NotFound:
            return await self._create(began)
        except errors.ApiError as error:
            log.warning("lease %s/%s: cannot be read: %s", self._namespace, self._name, error)
            return False
        self._observe(lease)
        if self.holder and self.holder != self.identity and not self._expired(lease):
            return False
        spec, transitions = self._spec(), lease.spec.lease_transitions or 0
        if self.holder != self.identity:
            transitions += 1
            spec["leaseTransitions"] = transitions
        self._version = lease.metadata.resource_version
        try:
            await self._write(spec)
        except errors.ApiError as error:
            log.debug("lease %s/%s: not acquired: %s", self._namespace, self._name, error)
            return False
        self._renewed_at = began
        self.holder = self.identity
        self.transitions = transitions
        return True

    async def _create(self, began: float) -> bool:
        metadata = {"name": self._name, "namespace": self._namespace}
        try:
            made = await self._client.create(
                LEASES, {"metadata": metadata, "spec": self._spec() | {"leaseTransitions": 0}}
            )
        except errors.ApiError as error:
            log.log(
                logging.DEBUG if isinstance(error, errors.Conflict) else logging.WARNING,
                "lease %s/%s: not created: %s", self._namespace, self._name, error,
            )  # fmt: skip
            return False
        self._version = made.metadata.resource_version
        self._renewed_at = began
        self.holder = self.identity
        self.transitions = 0
        return True

    def _spec(self) -> dict[str, Any]:
        now = timestamps.micro(self._wall())
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration_s)),
            "acquireTime": now,
            "renewTime": now,
        }

    def _observe(self, lease: Lease) -> None:
        self.holder = lease.spec.holder_identity or ""
        version = lease.metadata.resource_version
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self._clock())

    def _expired(self, lease: Lease) -> bool:
        assert self._seen is not None
        # No float is made of it: an integer may be too large for one.
        duration_s = max(lease.spec.lease_duration_seconds or 0, self._terms.duration_s)
        return self._clock() - self._seen[1] >= duration_s

    async def _write(self, spec: dict[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        written = await self._client.patch(LEASES, self._name, body, namespace=self._namespace)
        self._version = written.metadata.resource_version
