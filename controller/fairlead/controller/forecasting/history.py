"""What forecasts learn from: run times of gangs, gangs as they were requested, and how far earlier forecasts were off. Bounded.

Run times and errors outlive the controller, as text in one small ConfigMap of the controller's own namespace, which each new leader
reads once, and writes when there is something new, at most every `WRITE_S`. It is installed empty: the account creates none. Where it
cannot be read or written forecasts go on without a past; that is logged once. Requests are learned anew by each leader, from what waits
and runs when it starts. Time is an argument.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.engine.forecast.calibration import KEPT_MAX, Calibration, Outcome
from fairlead.engine.forecast.run_times import GangKey, RunRecord
from fairlead.engine.forecast.submissions import Arrivals
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.containment import contained, described
from fairlead.kube.limits import Clock

K = TypeVar("K")
RUNS_MAX = 3_000  # of all gangs; beyond, the namespace with most loses its oldest
STARTS_MAX = 20  # of like gangs
KEYS_MAX = 2_000  # of which starts are known
LIKE_MAX = 50  # of like gangs: one that runs every minute leaves room for the others
REQUESTS_MAX = 4_000
SHORTEST_S = 1.0


class RunHistory:
    def __init__(self) -> None:
        self.version = 0  # grows with what is to be checkpointed
        self._runs: deque[RunRecord] = deque()
        self._like: dict[GangKey, int] = {}
        self._outcomes: dict[int, tuple[str, Outcome]] = {}  # by number, the latest last; with the gang's namespace
        self._noted = 0  # outcomes so far
        self._running: dict[str, RunningGang] = {}
        self._requests: dict[str, GangRequest] = {}  # by id, the latest last
        self._users: dict[str, str] = {}  # by id, asked when a gang is seen first, and when it runs
        self._since: float | None = None
        self._starts: dict[GangKey, deque[float]] = {}  # seconds from admission until it ran; the latest key last

    # -- what happens ----------------------------------------------------------------------------------------------

    def note(
        self,
        pending: Iterable[GangRequest],
        running: Iterable[RunningGang],
        now: float,
        evicted: Callable[[str], bool],
        user_of: Callable[[str], str] = lambda _: "",
    ) -> dict[str, str]:
        """All gangs as they are now. Returns those that were left out, by id, and what was raised.

        `evicted`: whether a gang that runs no more was stopped rather than ended by itself.

        `user_of`: who submitted a gang, by its id, asked once of each run; "" where that is not known.
        """
        left_out: dict[str, str] = {}

        def failed(gang_id: str, error: Exception) -> None:
            left_out[gang_id] = described(error)

        if self._since is None:
            self._since = now
        now_running = {gang.id: gang for gang in running}
        for gang in [gang for gang_id, gang in self._running.items() if gang_id not in now_running]:
            with contained(partial(failed, gang.id)):
                if not gang.endless:
                    self._add(self._record(gang, now, ended=not evicted(gang.id)))
        came = [gang_id for gang_id in now_running if gang_id not in self._running]
        self._running = now_running
        for request in pending:
            if request.whole and not request.placed_nodes and not request.replaces and request.id not in self._requests:
                self._requests[request.id] = replace(request, preemptor=False)
                came.append(request.id)
        _forget(self._requests, REQUESTS_MAX, lambda gang_id: gang_id.partition("/")[0])
        for gang_id in came:
            with contained(partial(failed, gang_id)):
                if user := user_of(gang_id):
                    self._users[gang_id] = user
        if len(self._users) > 2 * REQUESTS_MAX + len(now_running):
            kept = self._requests.keys() | now_running.keys()
            self._users = {gang_id: user for gang_id, user in self._users.items() if gang_id in kept}
        return left_out

    def note_restart(self, key: GangKey, seconds: float) -> None:
        """A gang ran so long after its admission."""
        self.version += 1
        known = self._starts.pop(key, None) or deque(maxlen=STARTS_MAX)
        known.append(round(seconds, 1))
        self._starts[key] = known
        _forget(self._starts, KEYS_MAX, lambda each: each.namespace)

    def restart_s(self, key: GangKey) -> float | None:
        """The median; None where no run of such a gang is known."""
        known = self._starts.get(key)
        return median(known) if known else None

    def note_start(self, namespace: str, outcome: Outcome) -> None:
        """Note that a gang of that namespace began to run."""
        self.version += 1
        self._noted += 1
        self._outcomes[self._noted] = (namespace, outcome)
        _forget(self._outcomes, KEPT_MAX, lambda number: self._outcomes[number][0])

    def _record(self, gang: RunningGang, now: float, *, ended: bool) -> RunRecord:
        limit_s = None if gang.ends_by is None else gang.ends_by - gang.started
        return RunRecord(
            GangKey.of(gang, self._users.get(gang.id, "")), max(SHORTEST_S, now - gang.started), ended, limit_s
        )

    def _add(self, record: RunRecord) -> None:
        self.version += 1
        self._runs.append(record)
        self._like[record.key] = self._like.get(record.key, 0) + 1
        if self._like[record.key] > LIKE_MAX:
            self._runs.remove(next(each for each in self._runs if each.key == record.key))
            self._like[record.key] -= 1
        if len(self._runs) > RUNS_MAX:
            counts = Counter(each.key.namespace for each in self._runs)
            most = max(counts.values())
            forgotten = next(each for each in self._runs if counts[each.key.namespace] == most)
            self._runs.remove(forgotten)
            self._like[forgotten.key] -= 1
            if not self._like[forgotten.key]:
                del self._like[forgotten.key]

    # -- what is learned -------------------------------------------------------------------------------------------

    def records(self, now: float) -> list[RunRecord]:
        """Runs that ended, and those under way."""
        return [
            *self._runs,
            *(self._record(gang, now, ended=False) for gang in self._running.values() if not gang.endless),
        ]

    def users(self) -> dict[str, str]:
        """By gang id, where it is known."""
        return dict(self._users)

    def requests(self) -> dict[str, GangRequest]:
        """By id, of gangs that run, what they requested, as far as that was seen."""
        return {gang_id: self._requests[gang_id] for gang_id in self._running if gang_id in self._requests}

    def arrivals(self, now: float) -> Arrivals:
        return Arrivals(self._requests.values(), since=now if self._since is None else self._since, now=now)

    @property
    def calibration(self) -> Calibration:
        return Calibration(outcome for _, outcome in self._outcomes.values())

    # -- as text ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """JSON, some 55 bytes a run: at most 250 KB."""
        runs = [[*each.key[:3], round(each.run_s, 1), each.ended, each.limit_s] for each in self._runs]
        outcomes = [[namespace, *(round(number, 1) for number in each)] for namespace, each in self._outcomes.values()]
        starts = [[*key[:3], *times] for key, times in self._starts.items()]
        places: dict[str, list[int]] = {}
        for place, each in enumerate(self._runs):
            if each.key.user:
                places.setdefault(each.key.user, []).append(place)
        users = [[user, *found] for user, found in places.items()]  # beside `runs`, which earlier versions read too
        return msgspec.json.encode({"runs": runs, "users": users, "outcomes": outcomes, "starts": starts}).decode()

    def restore(self, text: str) -> None:
        """Continue from `text`. Raises ValueError for what is none, and takes nothing of it."""
        try:
            found = msgspec.json.decode(text.encode(), type=dict[str, list[list[Any]]])
            users = {int(place): str(user) for user, *places in found.get("users", ()) for place in places}
            runs = [
                RunRecord(
                    GangKey(str(namespace), str(stem), int(size), users.get(place, "")),
                    float(run_s),
                    bool(ended),
                    limit_s and float(limit_s),
                )
                for place, (namespace, stem, size, run_s, ended, limit_s) in enumerate(found.get("runs", ()))
            ]
            outcomes = [
                (str(namespace), Outcome(*map(float, times))) for namespace, *times in found.get("outcomes", ())
            ]
            starts = [
                (GangKey(str(namespace), str(stem), int(size)), [float(time) for time in times])
                for namespace, stem, size, *times in found.get("starts", ())
            ]
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise ValueError(f"no history of runs: {error}") from error
        for run in runs:
            self._add(run)
        for namespace, outcome in outcomes:
            self.note_start(namespace, outcome)
        for key, times in starts:
            for time in times:
                self.note_restart(key, time)


def _forget(kept: dict[K, Any], most: int, namespace_of: Callable[[K], str]) -> None:
    """Down to so many: the oldest of the namespace that has most, one after another."""
    excess = len(kept) - most
    if excess <= 0:
        return
    counts = Counter(map(namespace_of, kept))
    going = Counter[str]()
    for _ in range(excess):
        heaviest = max(counts, key=counts.__getitem__)
        counts[heaviest] -= 1
        going[heaviest] += 1
    for key in list(kept):
        if going[namespace_of(key)]:
            going[namespace_of(key)] -= 1
            del kept[key]


log = logging.getLogger(__name__)

NAME = "fairlead-run-history"
KEY = "history.json"
WRITE_S = 300.0


class Checkpoint:
    def __init__(self, client: Client, namespace: str, history: RunHistory, *, clock: Clock) -> None:
        self.history = history
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._failed = False
        self._written = 0  # version of the history
        self._written_at = float("-inf")

    async def read(self) -> None:
        try:
            found = await self._client.get(resources.CONFIG_MAPS, NAME, self._namespace)
            self.history.restore((found.get("data") or {}).get(KEY) or "{}")
        except (errors.ApiError, ValueError) as error:
            self._fail("read", error)
        self._written = self.history.version

    async def write(self) -> None:
        """Where it is due."""
        history = self.history
        if history.version == self._written or self._clock() - self._written_at < WRITE_S:
            return
        self._written_at, version = self._clock(), history.version
        data = {KEY: history.text()}
        try:
            await self._client.patch(resources.CONFIG_MAPS, NAME, {"data": data}, namespace=self._namespace)
            self._written = version
        except errors.ApiError as error:
            self._fail("written", error)

    def _fail(self, verb: str, error: Exception) -> None:
        absent = isinstance(error, errors.NotFound)
        log.log(
            logging.DEBUG if self._failed else logging.WARNING,
            "ConfigMap %s/%s: history of run times not %s: %s; forecasts do without it%s",
            self._namespace, NAME, verb, error,
            "; it comes with the installation: run `helm upgrade`, or apply manifests/base" if absent else "",
        )  # fmt: skip
        self._failed = True
