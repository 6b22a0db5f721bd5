"""Writes the usage of claims' devices into the claims' statuses, and after a restart continues from what is there.

Server-side apply with a field manager of its own: only this driver's entries of `status.devices` change, whoever else
writes the claim meanwhile. The claim's UID goes along, so a claim that was recreated under the name is left alone.
Keeps: one request at a time, none of a claim that is not prepared; an error is one line in the log per kind and hour, and
a metric. The cluster does without this feature where the driver may not write: nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Literal

from fairlead.driver.prepare.orphans import Fetch
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.usage.sampler import Rates, Sampler, Schedule, Usages
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.device_usage import usage_of
from fairlead.kube.limits import Clock, Sleep
from fairlead.kube.resources import RESOURCE_CLAIMS, raw

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "fairlead-driver"
Result = Literal["ok", "gone", "forbidden", "invalid", "error"]
# Until a claim is tried again. What is forbidden or refused stays so until an administrator changes something.
_WAIT_S: Final[Mapping[str, float]] = {"gone": 3600.0, "forbidden": 3600.0, "invalid": 3600.0, "error": 120.0}
_ADVICE: Final[Mapping[str, str]] = {
    "forbidden": "; the driver's role needs patch on resourceclaims/status, and associated-node:patch on resourceclaims/driver",
    "invalid": "; this claim's usage is not written for an hour",
}
LOG_EVERY_S: Final = 3600.0


@dataclasses.dataclass(eq=False)
class UsageWriter:
    """`step` does what is due, `run` every `interval_s`. `count` is called with the result of each write.

    `fetch` reads a claim; it raises ApiError. Claims with a record at the first step are those of the process before.
    """

    client: Client
    sampler: Sampler
    records: RecordCache
    _: dataclasses.KW_ONLY
    fetch: Fetch
    count: Callable[[Result], None]
    rates: Rates = dataclasses.field(default_factory=Rates)
    interval_s: float = 5.0
    wall: Clock = time.time
    sleep: Sleep = asyncio.sleep
    random: Random = dataclasses.field(default_factory=Random)

    def __post_init__(self) -> None:
        self._schedule = Schedule(self.rates)
        self._unread: set[str] | None = None
        self._read_again_s = 0.0
        self._pause_s = 0.0
        self._logged: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except Exception:  # nothing of this may end the driver
                log.exception("the usage of devices could not be written; tried again in %g s", self.interval_s)
            await self.sleep(self.interval_s)

    async def step(self) -> None:
        """Read what the process before wrote, then write what is due."""
        now_s = self.wall()
        prepared = {record.uid: record for record in self.records.all() if record.state == "prepared"}
        if self._unread is None:
            self._unread = set(prepared)
            # After an update of all drivers, not all at once.
            self._read_again_s = now_s + self.random.random() * self.rates.spread_s
        self._unread &= prepared.keys()
        self._schedule.seen(prepared, now_s)
        if self._unread and not now_s < self._read_again_s <= now_s + self.rates.refresh_s:
            for uid in sorted(self._unread):
                if not await self._resume(prepared[uid]):
                    break
        for uid in sorted(prepared.keys() - self._unread):
            now_s = self.wall()
            if now_s < self._pause_s <= now_s + 2 * self.rates.refresh_s:
                return
            usages = self.sampler.usages(uid, now_s)
            record = self.records.get(uid)  # now: it may have been unprepared during the write before
            if record is not None and record.state == "prepared" and self._schedule.due(uid, usages, now_s):
                await self._write(record, usages)

    async def _resume(self, record: ClaimRecord) -> bool:
        """False when the apiserver does not answer; then it is tried again."""
        assert self._unread is not None
        now_s = self.wall()
        try:
            claim = await self.fetch(record.namespace, record.name)
        except errors.NotFound:
            written: Usages = {}
        except errors.ApiError as error:
            self._log("read", f"{record}: what was written of its devices cannot be read: {error}")
            self._read_again_s = now_s + self.rates.spread_s * (0.5 + self.random.random())
            return False
        else:
            written = usage_of(claim) if claim.metadata.uid == record.uid else {}
        self._unread.discard(record.uid)
        if written:
            self.sampler.resume(record.uid, written, now_s)
            last_s = min(now_s, max(usage.sampled_at_s for usage in written.values()))
            self._schedule.wrote(record.uid, written, last_s)
        return True

    async def _write(self, record: ClaimRecord, usages: Usages) -> None:
        result: Result = "ok"
        problem: errors.ApiError | None = None
        try:
            await self.client.patch(
                raw(RESOURCE_CLAIMS),
                record.name,
                body(record, usages),
                namespace=record.namespace,
                kind=Patch.APPLY,
                subresource="status",
                field_manager=FIELD_MANAGER,
                force=True,
            )
        except (errors.NotFound, errors.Conflict) as error:
            result, problem = "gone", error
        except (errors.Forbidden, errors.Unauthorized, errors.MethodNotAllowed) as error:
            result, problem = "forbidden", error
        except errors.Invalid as error:
            result, problem = _refusal(error), error
        except errors.ApiError as error:
            result, problem = "error", error
        now_s = self.wall()
        self.count(result)
        if problem is None:
            self._schedule.wrote(record.uid, usages, now_s)
            return
        wait_s = _WAIT_S[result] * (0.5 + self.random.random())
        self._schedule.postpone(record.uid, now_s + wait_s)
        if result in {"forbidden", "error"}:  # the next claim would fare no better
            self._pause_s = now_s + wait_s
        self._log(result, f"{record}: the usage of its devices is not written: {problem}{_ADVICE.get(result, '')}")

    def _log(self, kind: str, message: str) -> None:
        """One line per kind and hour; a claim that is gone is no problem."""
        now_s = self.wall()
        if kind in self._logged and 0 <= now_s - self._logged[kind] < LOG_EVERY_S:
            return
        self._logged[kind] = now_s
        log.log(logging.INFO if kind == "gone" else logging.WARNING, "%s", message)


def _refusal(error: errors.Invalid) -> Result:
    """What a 422 says: another claim has the name now, a right is missing (1.36 checks it there), or the content is refused."""
    if "metadata.uid" in error.message:
        return "gone"
    return "forbidden" if "resourceclaims/driver" in error.message else "invalid"


def body(record: ClaimRecord, usages: Usages) -> dict[str, Any]:
    """What is applied: this driver's entries, whole."""
    entries = []
    for device, usage in usages.items():
        entry = {"driver": device.driver, "pool": device.pool, "device": device.device, "data": usage.to_json()}
        entries.append(entry | ({"shareID": device.share_id} if device.share_id else {}))
    metadata = {"name": record.name, "namespace": record.namespace, "uid": record.uid}
    return {"metadata": metadata, "status": {"devices": entries}}
