"""What the flight recorder costs at 20,000 pods a day: CPU beside the loop, time in the loop, bytes on disk; and how fast it replays.

    python -m benchmarks history
    python -m benchmarks history -- --pods 20000 --nodes 100 --hours 24

Some hours of a simulated day in virtual time: gangs come evenly, run, and end; each arrival and each end is a decision, as on a real
cluster, where bursts make it fewer. The recorder writes beside it as the controller's does. Bars (issue 17): at most 2 % of CPU and
100 MB a day. Of CPU twice: of one core over the hours, which is the bar, and of what their decisions take, which is not bounded by
the issue but tells what recording adds to a controller that does nothing else.

A day's 22,000 decisions on a full cluster take hours of CPU, so `--hours` are recorded, and bytes are those of the hours times
24 / hours. What comes before, until as many gangs run and wait as later, is not
recorded. So the recording begins with the whole state of a full cluster, as each segment does: every so many hours here, every six in a
controller, so bytes are rather too many.

And the figures of `python -m benchmarks ledger`, on SQLite.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import ledger
from fairlead.api import names
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.history.facts.changes import Watcher
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.recorder import Job, Shared, Writing
from fairlead.history.recording.verify import Counts, differences
from fairlead.history.recording.writer import Bounds, segments
from fairlead.kube.garbage import frozen_heap
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

DAY_S = 86_400.0
BEGIN = 1_790_000_000.0
SIZES = ((1, 1), (1, 2), (1, 8), (2, 8), (4, 8))  # pods, GPUs of each
CPU_BAR_PERCENT = 2.0
BYTES_BAR_MB = 100.0
LOAD = 0.9  # of the GPUs, on average
WARM_UP_RUNS = 4  # average runs before the recording begins


class Day:
    """Records while it lives; the sums are of this thread's CPU time."""

    def __init__(self, pods: int, nodes: int, hours: float, directory: Path) -> None:
        """`pods`: of a whole day."""
        self.random = Random(7)
        self.pods = pods
        self.hours = hours
        self.began = BEGIN  # the recording
        self.noted_s = self.written_s = self.decided_s = 0.0
        self.decisions = 0
        self.waited = 0
        self.world = World()
        for number in range(nodes):
            self.world.add_node(f"node-{number:04}", [gpu(minor) for minor in range(8)])
        self.world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
        self.world.queues = tuple(
            QueueSpec(
                name=f"team-{number:02}",
                uid=f"q{number}",
                quotas=(FlavorQuota(flavor="gpu", deserved=nodes * 8 // 20),),
            )
            for number in range(20)
        )
        self.shared = Shared()
        self.watcher = Watcher()
        bounds = Bounds(bytes_max=2**40, age_max_s=1e12)
        self.writing = Writing(
            directory, bounds, self.shared, writer="bench", clock=lambda: self.world.now, wall=lambda: self.world.now
        )  # fmt: skip

    def live(self) -> None:
        random, world = self.random, self.world
        gangs_a_day = self.pods / (sum(pods for pods, _ in SIZES) / len(SIZES))
        gpus_a_day = gangs_a_day * sum(pods * each for pods, each in SIZES) / len(SIZES)
        run_s = LOAD * len(world.node_json) * 8 * DAY_S / gpus_a_day
        self.began = BEGIN + WARM_UP_RUNS * run_s
        span_s = WARM_UP_RUNS * run_s + self.hours * 3600
        arrivals = sorted(
            (BEGIN + random.uniform(0, span_s), *random.choice(SIZES))
            for _ in range(round(gangs_a_day * span_s / DAY_S))
        )
        waiting: list[Any] = []
        ends: list[tuple[float, str, float]] = []  # when, gang, its start
        place = 0
        while place < len(arrivals) or ends:
            world.now = min([each[0] for each in arrivals[place : place + 1]] + [each[0] for each in ends[:1]])
            if world.now > BEGIN + span_s:
                break
            while ends and ends[0][0] <= world.now:
                _, gang_id, started = heapq.heappop(ends)
                if gang_id in world.running and world.running[gang_id].started == started:
                    world.end(gang_id)
            while place < len(arrivals) and arrivals[place][0] <= world.now:
                _, pods, each = arrivals[place]
                made_of = claim_spec(device_request(each))
                queue = f"team-{random.randrange(20):02}"
                waiting.append(gang(f"job-{place:06}", pods, made_of, created=world.now, queue=queue))
                place += 1
            plan = self._decide(waiting)
            waiting = world.carry_out(plan, waiting)
            for admission in plan.admissions:
                heapq.heappush(ends, (world.now + random.expovariate(1 / run_s), admission.id, world.now))
            waiting += world.gone()  # what was reclaimed waits again
            self.waited = max(self.waited, len(waiting))
        self.writing.close()

    def _decide(self, waiting: list[Any]) -> Any:
        """As the controller's cycle: note, decide, write."""
        snapshot = self.world.snapshot(*sorted(waiting, key=lambda each: each.id))
        if self.world.now < self.began:
            return self.world.engine.decide(snapshot, self.world.now)
        if self.shared.whole.is_set():
            self.shared.whole.clear()
            self.watcher.forget()
        at = [time.thread_time()]
        noted = self.watcher.note(snapshot)
        at.append(time.thread_time())
        plan = self.world.engine.decide(snapshot, self.world.now)
        at.append(time.thread_time())
        self.writing.write(Job(noted, self.world.now, plan, 0.0, 0, ""))
        at.append(time.thread_time())
        self.noted_s += at[1] - at[0]
        self.decided_s += at[2] - at[1]
        self.written_s += at[3] - at[2]
        self.decisions += 1
        return plan


def figures(*words: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks history --")
    parser.add_argument("--pods", type=int, default=20_000, help="of one day")
    parser.add_argument("--nodes", type=int, default=100, help="of eight GPUs")
    parser.add_argument("--hours", type=float, default=2.0, help="that are recorded")
    parser.add_argument(
        "--without-replay", action="store_true", help="record only: deciding again takes as long once more"
    )
    parser.add_argument("--without-ledger", action="store_true", help="of the recorder only")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name, frozen_heap():
        day = Day(options.pods, options.nodes, options.hours, Path(name))
        day.live()
        size = sum(path.stat().st_size for _, path in segments(Path(name)))
        counts, began = Counts(), time.process_time()
        different = 0 if options.without_replay else sum(1 for _ in differences(Reader([Path(name)]), counts))
        replayed_s = time.process_time() - began
    recorded_s = day.noted_s + day.written_s
    label = f"history/{options.pods}-pods-a-day"
    span_s = options.hours * 3600
    found = [
        {"figure": f"{label}/core", "value": round(100 * recorded_s / span_s, 4), "unit": "percent of a core", "bar": CPU_BAR_PERCENT, "hours": options.hours},
        {"figure": f"{label}/disk", "value": round(size * DAY_S / span_s / 1e6, 2), "unit": "MB/day", "bar": BYTES_BAR_MB, "scaled": False, "hours": options.hours},
        {"figure": f"{label}/of-deciding", "value": round(100 * recorded_s / day.decided_s, 1), "unit": "percent of deciding", "bar": None},
        {"figure": f"{label}/in-the-loop", "value": round(1e6 * day.noted_s / day.decisions, 1), "unit": "us/decision", "bar": None},
        {"figure": f"{label}/beside-the-loop", "value": round(1e6 * day.written_s / day.decisions, 1), "unit": "us/decision", "bar": None},
        {"figure": f"{label}/deciding", "value": round(1e6 * day.decided_s / day.decisions, 1), "unit": "us/decision", "bar": None},
        {"figure": f"{label}/decisions", "value": day.decisions, "unit": "", "bar": None, "most_waiting": day.waited},
    ]  # fmt: skip
    replayed = [
        {"figure": f"{label}/replay", "value": round(counts.decisions / replayed_s, 1), "unit": "decisions/s", "bar": None},
        {"figure": f"{label}/different", "value": different, "unit": "decisions", "bar": 0, "scaled": False},
    ]  # fmt: skip
    found += [] if options.without_replay else replayed
    return found if options.without_ledger else found + ledger.figures("--without-postgres")
