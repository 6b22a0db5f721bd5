"""Repairs GPUs of this node, one step after another, over kills of the driver and reboots of the node.

    draining    tainted; claims of before go on, and are waited for; processes, too
    resetting   closed: no claim is prepared; on disk before anything is done
    restoring   MIG devices and compute mode as before
    verifying   the hardware is read again, and compared
    done        the taint is gone; or failed: tainted and closed until another repair is asked for

Keeps: no GPU is reset that a claim has, admin access included (they are looked at under the locks that a prepare holds,
after the GPU was closed); no taint goes before the GPU was found well; what is on disk never says less than was done.
Two driver processes of a rolling update share the file, and work under the process lock.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping

import msgspec

from fairlead.api import repair as api
from fairlead.driver.backend import links
from fairlead.driver.backend.interface import BackendError, InUse
from fairlead.driver.common import files
from fairlead.driver.common.locks import ProcessLock, ProcessLockError
from fairlead.driver.node_gpus import NodeGpus
from fairlead.driver.prepare import records
from fairlead.driver.publish.monitor import Drain
from fairlead.driver.publish.sync import Annotations, Gone
from fairlead.driver.repair import hardware, state
from fairlead.driver.repair.state import Member, Repair, RepairStore, StoreError
from fairlead.kube.timing import REAL, Time

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 10.0
# NVLinks train, and NVML's recovery action follows its Xid within half of this.
VERIFY_MAX_S = 60.0
BACKOFF_S = 5.0
BACKOFF_MAX_S = 60.0
SAY_S = 0.25  # how often a step shows that takes longer


def _ignore(step: str) -> None:
    pass


@dataclasses.dataclass(eq=False)
class Repairer:
    """`tick` takes up requests and brings each repair as far as it gets now, `run` does so every `interval_s`.

    `annotations` gives those of the node's slice; `publish` is called with what they should be, after drains have changed.
    `ended` is called with each repair that came to an end. `quiet_s` is how long a GPU is watched after its reset.
    """

    gpus: NodeGpus
    _: dataclasses.KW_ONLY
    store: RepairStore
    process_lock: ProcessLock
    annotations: Callable[[], Mapping[str, str]]
    publish: Callable[[Annotations], None]
    ended: Callable[[Repair], None]
    quiet_s: float = 10.0
    interval_s: float = 1.0
    timing: Time = REAL
    on_step: Callable[[str], None] = _ignore

    def __post_init__(self) -> None:
        self.repairs: dict[str, Repair] = {}
        self._problem = ""
        self._tries: dict[str, tuple[int, float]] = {}  # by repair: attempts in vain, and when the next is due
        self._xids: dict[str, Mapping[str, int]] = {}  # by GPU: counts right before its reset by this process

    def start(self) -> None:
        """Take over what an earlier process left, before anything is published or prepared. Blocks.

        Where the file cannot be read, any GPU may have been left half repaired: then none is used.
        """
        try:
            self._note(self.store.load())
        except StoreError as error:
            log.error("%s", error)
            known = hardware.members_of(self.gpus.monitor.inventory.gpus, self.gpus.monitor.inventory)
            self._note(
                {
                    f"gpu-{member.minor}": Repair(
                        id="unreadable",
                        device=f"gpu-{member.minor}",
                        phase="failed",
                        since_s=self.timing.wall(),
                        members=(member,),
                        message=str(error)[: state.MESSAGE_MAX],
                    )
                    for member in known
                }
            )

    async def run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception as error:
                problem = files.describe(error) if isinstance(error, OSError) else str(error)
                if problem != self._problem:
                    log.exception("repairs cannot go on; tried again every %g s", self.interval_s)
                self._problem = problem
            else:
                self._problem = ""
            await self.timing.sleep(self.interval_s)

    async def tick(self) -> None:
        """Raises StoreError, ProcessLockError or OSError; then nothing is lost."""
        asked = api.requests(self.annotations())
        fresh = {device: each for device, each in asked.items() if self._is_news(device, each)}
        if fresh or any(each.under_way for each in self.repairs.values()):
            try:
                async with self.process_lock.hold(timeout_s=LOCK_TIMEOUT_S):
                    await self._work(fresh)
            except ProcessLockError as error:
                log.info("%s", error)
        elif "unreadable" not in {each.id for each in self.repairs.values()}:
            self._note(await self.gpus.threads.run(self.store.load))
        self._say()

    async def _work(self, fresh: Mapping[str, api.Request]) -> None:
        if "unreadable" not in {each.id for each in self.repairs.values()}:
            self._note(await self.gpus.threads.run(self.store.load))
        for device, request in sorted(fresh.items()):
            if self._is_news(device, request):
                await self._take_up(device, request)
        for device in sorted(self.repairs):
            repair = self.repairs[device]
            if repair.phase == "verifying":
                await self._verify(repair)
            elif repair.under_way and self._tries.get(repair.id, (0, 0.0))[1] <= self.timing.wall():
                attempt = asyncio.get_running_loop().create_task(self.gpus.threads.run(self._attempt, repair))
                while not attempt.done():
                    await asyncio.wait({attempt}, timeout=SAY_S)
                    self._say()
                attempt.result()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _is_news(self, device: str, request: api.Request) -> bool:
        known = self.repairs.get(device)
        if request.action == "cancel":
            return known is not None and known.id == request.id and known.phase in api.REVOCABLE
        if request.action == "drain" and known is not None and known.phase in api.TAINTED:
            return False  # as it is: a repair that failed closes the GPU besides
        return known is None or (known.id != request.id and not known.under_way)

    async def _take_up(self, device: str, request: api.Request) -> None:
        before = self.repairs.get(device)
        if request.action == "cancel":
            repair = self.repairs[device].to("cancelled", self.timing.wall(), "taken back before anything was done")
        else:
            repair = await self.gpus.threads.run(self._begun, device, request)
        if repair.phase == "refused" and before is not None and before.phase in {"failed", "drained"}:
            # It stays tainted: only a repair that succeeds says that the GPU is well, and only an operator ends a drain.
            repair = before.to(
                before.phase, self.timing.wall(), f"{repair.message}; before: {before.message or before.phase}"
            )
            repair = msgspec.structs.replace(repair, id=request.id)
        superseded = (
            {each.device for each in state.overlapping(self.repairs, repair.uuids) if each.phase != "drained"}
            if repair.under_way
            else ()
        )
        kept = {each: known for each, known in self.repairs.items() if each not in superseded}
        await self.gpus.threads.run(self._save_all, {**kept, device: repair})
        log.info("repair of %s: %s %s", device, repair.phase, repair.message)
        self.on_step(f"{repair.phase} recorded")
        drained = repair.phase == "drained" or (before is not None and before.phase == "drained")
        if not repair.under_way and not drained:
            self.ended(repair)

    def _begun(self, device: str, request: api.Request) -> Repair:
        """The new repair, or its refusal. Blocks."""
        now_s, inventory = self.timing.wall(), self.gpus.monitor.inventory

        def refused(why: str) -> Repair:
            return Repair(
                id=request.id, device=device, phase="refused", since_s=now_s, message=why[: state.MESSAGE_MAX]
            )

        gpu = next((each for each in inventory.gpus if each.minor == api.minor_of(device)), None)
        if gpu is None:
            return refused(f"this node has {', '.join(f'gpu-{each.minor}' for each in inventory.gpus) or 'no GPU'}")
        if request.action == "drain":
            members = hardware.members_of((gpu,), inventory)
            return Repair(id=request.id, device=device, phase="drained", since_s=now_s, members=members)
        gpus = links.reset_together(inventory.gpus, gpu)
        members = hardware.members_of(gpus, inventory)
        for member in members:
            if (why := self.gpus.backend.reset_refusal(member.uuid)) is not None:
                return refused(why)
        others = state.overlapping(self.repairs, [member.uuid for member in members])
        busy = next((each for each in others if each.under_way), None)
        if busy is not None:
            return refused(f"{busy.device} is being repaired, and {device} is reset with it")
        before = {member.uuid: member for each in others for member in each.members if member.kept}
        members = tuple(before.get(member.uuid, member) for member in members)
        return Repair(id=request.id, device=device, phase="draining", since_s=now_s, members=members)

    # -- drain, reset, restore ---------------------------------------------------------------------------------------

    def _attempt(self, repair: Repair) -> None:
        """Reset and restore if nothing holds the GPUs. Blocks; each intent is on disk before its deed."""
        if self._waits(repair, self._holders(repair)):
            return
        closing = self.gpus.drains.of("repair")
        for member in repair.members:
            closing[member.uuid] = Drain(value=repair.phase, closed=f"{repair.device} is about to be reset")
        self.gpus.drains.replace("repair", closing)
        with self.gpus.preparer.exclusively(*repair.uuids, admin=True) as held:
            if self._waits(repair, [f"ResourceClaim {each.namespace}/{each.name}" for each in held]):
                return
            try:
                self._reset(repair)
            except InUse as error:
                self._wait(self.repairs[repair.device], str(error), ())
            except BackendError as error:
                self._end(self.repairs[repair.device].to("failed", self.timing.wall(), str(error)))

    def _reset(self, repair: Repair) -> None:
        if repair.phase != "restoring":
            members = tuple(hardware.kept(self.gpus.backend, member) for member in repair.members)
            repair = self._save(msgspec.structs.replace(repair, members=members).to("resetting", self.timing.wall()))
            self.on_step("reset intended")
            counts = self.gpus.monitor.xids.by_gpu
            self._xids |= {uuid: dict(counts.get(uuid, {})) for uuid in repair.uuids}
            self.gpus.backend.reset(repair.uuids)
            self.on_step("reset done")
            repair = self._save(repair.to("restoring", self.timing.wall()))
        self.on_step("restore intended")
        for member in repair.members:
            try:
                hardware.restore(self.gpus.backend, member)
            except BackendError as error:
                raise BackendError(f"reset, but its MIG devices could not be made again: {error}") from error
            self.on_step("restored one")
        self._save(repair.to("verifying", self.timing.wall()))
        self._tries.pop(repair.id, None)
        self.gpus.monitor.read_again()
        self.on_step("verification intended")

    def _holders(self, repair: Repair) -> list[str]:
        with_claims = [
            f"ResourceClaim {record.namespace}/{record.name}"
            for record in records.holders(self.gpus.preparer.records(), *repair.uuids, admin=True)
        ]
        # A claim that is being ended has processes for a moment longer: they are looked at when no claim is left.
        return with_claims or [
            each for member in repair.members for each in hardware.clients(self.gpus.backend, member)
        ]

    def _waits(self, repair: Repair, holders: list[str]) -> bool:
        if holders:
            shown = ", ".join(holders[: state.HOLDERS_SHOWN])
            more = f" and {len(holders) - state.HOLDERS_SHOWN} more" if len(holders) > state.HOLDERS_SHOWN else ""
            message = f"waits for {shown}{more}"
            if repair.phase == "draining" and repair.message == message:
                self._note(self.repairs)  # opened again
            else:
                self._save(repair.to("draining", self.timing.wall(), message, tuple(holders)))
        return bool(holders)

    def _wait(self, repair: Repair, why: str, holders: tuple[str, ...]) -> None:
        tries = self._tries.get(repair.id, (0, 0.0))[0] + 1
        wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(tries - 1, 8))
        self._tries[repair.id] = tries, self.timing.wall() + wait_s
        self._save(repair.to("draining", self.timing.wall(), f"{why}; tried again", holders))

    # -- verify ------------------------------------------------------------------------------------------------------

    async def _verify(self, repair: Repair) -> None:
        waited_s = self.timing.wall() - repair.since_s
        if self.gpus.monitor.full_at_s <= repair.since_s or waited_s < self.quiet_s:
            self.gpus.monitor.read_again()
            return
        wrong = [f"gpu-{member.minor}: {each}" for member in repair.members for each in self._problems(member)]
        if not wrong:
            self.gpus.monitor.healed(repair.uuids)  # first: the repair's own taint stands until it is recorded as done
            self.on_step("healed")
            await self.gpus.threads.run(self._end, repair.to("done", self.timing.wall(), "reset and found well"))
            self.on_step("done recorded")
        elif waited_s >= max(VERIFY_MAX_S, 2 * self.quiet_s):
            await self.gpus.threads.run(
                self._end, repair.to("failed", self.timing.wall(), "reset, but " + "; ".join(wrong))
            )
        elif repair.message != (message := "not yet: " + "; ".join(wrong)):
            await self.gpus.threads.run(self._save, repair.to("verifying", self.timing.wall(), message))
        self.gpus.monitor.read_again()

    def _problems(self, member: Member) -> list[str]:
        before = self._xids.get(member.uuid, {})
        now = self.gpus.monitor.xids.by_gpu.get(member.uuid, {})
        return hardware.problems(
            member,
            inventory=self.gpus.monitor.inventory,
            condition=next((each for each in self.gpus.monitor.conditions if each.uuid == member.uuid), None),
            telemetry=next((each for each in self.gpus.monitor.telemetry if each.uuid == member.uuid), None),
            new_xids=[code for code, count in now.items() if count > before.get(code, 0)],
            faults=self.gpus.monitor.faults_of(member.uuid),
        )

    # -- what is known, on disk and to others ------------------------------------------------------------------------

    def _end(self, repair: Repair) -> None:
        self._save(repair)
        self._tries.pop(repair.id, None)
        log.log(
            logging.INFO if repair.phase == "done" else logging.ERROR,
            "repair of %s: %s: %s",
            repair.device,
            repair.phase,
            repair.message,
        )
        self.ended(repair)

    def _save(self, repair: Repair) -> Repair:
        self._save_all({**self.repairs, repair.device: repair})
        return repair

    def _save_all(self, repairs: Mapping[str, Repair]) -> None:
        """To disk, then to memory: what fails on disk is not known in memory either."""
        kept = state.pruned(repairs, self.timing.wall())
        self.store.save(kept)
        self._note(kept)

    def _note(self, repairs: Mapping[str, Repair]) -> None:
        self.repairs = dict(repairs)
        self.gpus.drains.replace("repair", state.drains(self.repairs))

    def _say(self) -> None:
        """Bring slices and annotations up to what is known."""
        stored = self.annotations()
        said: dict[str, str | Gone] = {key: Gone() for key in stored if key.startswith(api.STATE_PREFIX)}
        said |= {f"{api.STATE_PREFIX}{each.device}": api.encode(each.shown()) for each in self.repairs.values()}
        for device, request in api.requests(stored).items():
            if not self._is_news(device, request):
                key = f"{api.REQUEST_PREFIX}{device}"
                said[key] = Gone(value=stored[key])
        self.publish(said)
