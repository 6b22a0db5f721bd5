"""Defects of the kind that the campaign exists to find, each put into the running code by name.

Each breaks one rule that an invariant rests on, and nothing else. `tests/chaos/test_campaign.py` shows that some are found; `python -m
tests.chaos --mutation NAME --until-failed` tries one until it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.controller.commit.committer import Committer, Outcome
from fairlead.controller.commit.writes import GivenUpError, all_done
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.tables import Tables
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint, Loaded
from fairlead.driver.publish.publisher import Publisher
from fairlead.history.facts.changes import Watcher
from fairlead.history.recording.records import CHAIN_START
from fairlead.history.recording.writer import RecordingWriter
from fairlead.kube import errors
from fairlead.kube.informer import Informer
from fairlead.kube.lease import LeaderLease

Mutation = Callable[[], None]
MUTATIONS: dict[str, Mutation] = {}


def _mutation(mutation: Mutation) -> Mutation:
    MUTATIONS[mutation.__name__.strip("_").replace("_", "-")] = mutation
    return mutation


def apply(name: str) -> None:
    """Raises KeyError for a name that there is not."""
    if name:
        MUTATIONS[name]()


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@_mutation
def _devices_under_way_are_free() -> None:
    """A decision does not count devices whose claims are still being written."""
    _put(Tables, "assume_claim", lambda self, key, claim: None)


@_mutation
def _release_before_all_is_written() -> None:
    """Members are released as soon as their own claims are written: none is waited for."""

    async def admit(self: Any, gang: Any, admission: Any) -> Outcome:
        members = {member.uid: member for member in gang.members}
        written: dict[str, Any] = {}
        placed = [(members[assigned.pod.uid], assigned.node) for assigned in admission.assignments]
        try:
            for member, node in placed:
                keys = {each.key for each in member.claims}
                await self._find_claims(member, written)
                await all_done(self._allocate(written, each) for each in admission.claims if each.key in keys)
                await self.release([(member, node)], written)
        except (GivenUpError, errors.ApiError) as error:
            return Outcome(done=False, released=1, why=str(error))
        return Outcome(done=True, released=len(placed))

    _put(Committer, "admit", admit)


@_mutation
def _lease_taken_early() -> None:
    """A standby takes the lease from a leader that is there."""
    _put(LeaderLease, "_expired", lambda self, lease: True)


@_mutation
def _undo_forgets_claims() -> None:
    """What was written of an admission that failed stays."""

    async def undo(self: Any, members: Sequence[Any], why: str) -> bool:
        return True

    _put(Committer, "undo", undo)


@_mutation
def _no_rollback() -> None:
    """A released gang whose pods do not bind is waited for without end."""
    _put(recovery, "_roll_back", lambda *_: None)


@_mutation
def _reports_forgotten() -> None:
    """A new leader does not look at gangs of which only the Gang object is left (found by the campaign)."""
    _put(Caches, "reported_gangs", lambda self: set())


@_mutation
def _deletions_ignored() -> None:
    """An informer keeps what was deleted."""
    _put(Informer, "_drop", lambda self, deleted, final: None)


@_mutation
def _watch_never_listed_again() -> None:
    """After 410 an informer goes on from its old version forever."""
    real = Informer._relist

    async def relist(self: Any) -> None:
        if not self.synced.is_set():
            await real(self)
        else:
            self._advance("1")

    _put(Informer, "_relist", relist)


@_mutation
def _driver_forgets_claims() -> None:
    """A driver that starts does not read what the one before it left."""
    _put(Checkpoint, "load", lambda self: Loaded(records={}, unreadable=(), earlier_boot=()))


@_mutation
def _slices_published_once() -> None:
    """Slices that another deletes, as kubelet does when it starts, are not published again."""
    _put(Publisher, "_changed", lambda self, change: None)


@_mutation
def _cdi_files_stay() -> None:
    """Unprepare leaves the claim's CDI file."""
    _put(CdiFiles, "remove", lambda self, uid: True)


@_mutation
def _gone_is_not_recorded() -> None:
    """A recording does not say what of a decision's inputs is gone."""
    real = Watcher.note

    def note(self: Any, snapshot: Any) -> Any:
        noted = real(self, snapshot)
        for entries in noted.tables.values():
            for key in [key for key, value in entries.items() if value is None]:
                del entries[key]
        return noted

    _put(Watcher, "note", note)


@_mutation
def _torn_segments_stay() -> None:
    """A new leader records on behind what a killed one left half written."""
    _put(
        RecordingWriter, "_close_torn", lambda self, path, reason, now: self._last.chain if self._last else CHAIN_START
    )
