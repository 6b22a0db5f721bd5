"""DESIGN 7.1 and 7.7 as properties: whatever is called, in whatever order, with the driver killed anywhere, no two claims
hold what overlaps, and everything is released in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.prepare import records
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.mps_daemons import Daemons, Limits
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from tests.support.driver.claims import claim, mps, time_slicing
from tests.support.driver.node import Killed, Node
from tests.support.engine.examples import examples

PROFILE = profiles.load("hgx-h100")
DEVICES = [
    "gpu-0",
    "gpu-1",
    "gpu-0-mig-1g10gb-19-0",
    "gpu-0-mig-1g10gb-19-3",
    "gpu-0-mig-3g40gb-9-0",
    "gpu-0-mig-4g40gb-5-0",
    "gpu-1-mig-3g40gb-9-4",
    "gpu-1-mig-7g80gb-0-0",
]

Step = tuple[str, int, tuple[str, ...], int | None]

steps = st.lists(
    st.tuples(
        st.sampled_from(["prepare", "prepare", "prepare", "unprepare", "restart", "busy", "free", "daemons die"]),
        st.integers(0, 3),  # which claim
        st.lists(st.sampled_from(DEVICES), min_size=1, max_size=3, unique=True).map(tuple),
        st.none() | st.integers(1, 12),  # after how many steps the driver dies
    ),
    max_size=25,
)


class Remembered(Daemons):
    """MPS daemons without processes, which a story of hundreds of claims cannot wait for."""

    def __init__(self, path: Path, backend: SimulatedBackend) -> None:
        super().__init__(path, backend.mps_program)
        self.running: set[str] = set()

    def uids(self) -> list[str]:
        return sorted(self.running)

    def alive(self, uid: str) -> bool:
        return uid in self.running

    def start(self, uid: str, uuids: Iterable[str], limits: Limits) -> None:
        self.running.add(uid)

    def stop(self, uid: str) -> bool:
        if uid not in self.running:
            return False
        self.running.discard(uid)
        return True


class Story:
    """One node through a list of steps."""

    def __init__(self, path: Path) -> None:
        self.backend = SimulatedBackend(PROFILE, node="n1")
        self.daemons = Remembered(path / "mps", self.backend)
        self.node = Node(path, self.backend, dynamic=True, own_daemons=self.daemons)
        self.countdown: int | None = None
        self.driver = self.start()

    def start(self) -> Preparer:
        self.node.passed = None  # starting is not interrupted
        driver = self.node.start()
        self.node.passed = self.passed
        return driver

    def passed(self, step: str) -> None:
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown == 0:
                raise Killed(step)

    def do(self, step: Step) -> None:
        verb, number, devices, self.countdown = step
        uid = f"u{number}"
        try:
            if verb == "prepare":
                config = [[time_slicing("Long")], [mps(), mps("MigDeviceConfig")], [], []][number]
                self.driver.prepare(claim(uid, *devices, config=config))
            elif verb == "unprepare":
                self.driver.unprepare(uid)
            elif verb == "restart":
                self.driver = self.start()
            elif verb == "daemons die":
                self.daemons.running.clear()
            elif verb == "busy":
                self.backend.faults.busy = {(0, 0), (1, 4)}
            else:
                self.backend.faults.busy = set()
        except (ClaimError, PrepareError):
            pass
        except Killed:
            self.countdown = None
            self.driver = self.start()
        self.check()

    def check(self) -> None:
        held = self.driver.records()
        for record in held:
            assert records.conflict(record.devices, [other for other in held if other.uid != record.uid]) is None
            for device in record.devices:
                others = [other for other in record.devices if other is not device]
                assert not any(records.overlap(device, other) for other in others)
        claimed = {
            (device.gpu_uuid, device.mig.start)
            for record in held
            for device in record.devices
            if device.mig and device.mig.made in {"creating", "live"}
        }
        there = {(gpu.uuid, mig.start) for gpu in self.backend.inventory().gpus for mig in gpu.mig_devices}
        assert there <= claimed  # each has a record that will destroy it
        begun = [record.mps for record in held if record.mps and record.mps.begun]
        assert self.daemons.running <= {record.uid for record in held if record.mps and record.mps.begun}
        minors = {gpu.uuid: gpu.minor for gpu in self.backend.inventory().gpus}
        exclusive = {minor for minor, mode in self.backend.state.compute_modes.items() if mode != "Default"}
        assert exclusive <= {minors[uuid] for one in begun for uuid in one.modes}

    def end(self) -> None:
        self.countdown = None
        self.backend.faults.busy = set()
        self.driver = self.start()
        for record in self.driver.records():
            self.driver.unprepare(record.uid)
        assert not self.node.leftovers()


@given(steps)
@settings(max_examples=examples(60), deadline=None)
def test_nothing_is_held_twice_and_nothing_leaks_whatever_happens(story: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = Story(Path(directory))
        for step in story:
            node.do(step)
        node.end()
