"""A GPU cut as declared: verified, put back where it fails, and killed after every step. On both backends."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.layouts.cutter import Cut, CutError, Cutter, Intents
from tests.support.driver import backends
from tests.support.driver.backends import Case as Hardware
from tests.support.driver.fake_nvml import FakeNvml
from tests.support.driver.node import Killed

OFF = Cut(enabled=False)
SEVEN = Cut(enabled=True, placements=tuple((19, start) for start in range(7)))
MIXED = Cut(enabled=True, placements=((19, 0), (19, 1), (14, 2), (9, 4)))
EMPTY = Cut(enabled=True)


@dataclasses.dataclass
class Case:
    """One H100, whose MIG devices may be kept busy, and the steps that cutters pass on it."""

    hardware: Hardware
    path: Path
    steps: list[str] = dataclasses.field(default_factory=list)
    slept: list[float] = dataclasses.field(default_factory=list)
    kill_at: str | None = None
    boot_id: str = "boot-1"

    @property
    def backend(self) -> Backend:
        return self.hardware.backend

    @property
    def uuid(self) -> str:
        return self.backend.inventory().gpus[0].uuid

    def cutter(self) -> Cutter:
        """Of a new process."""
        intents = Intents(self.path / "mig-config.json", boot_id=self.boot_id)
        return Cutter(backend=self.backend, intents=intents, on_step=self._passed, sleep=self.slept.append)

    def cut(self, wanted: Cut) -> bool:
        return self.cutter().cut(self.uuid, 0, wanted)

    @property
    def now(self) -> Cut:
        migs = self.backend.mig_devices(self.uuid)
        placements = tuple((mig.profile.id, mig.start) for mig in migs)
        return Cut(enabled=bool(self.backend.mig_mode(self.uuid)), placements=placements)

    @property
    def at_rest(self) -> bool:
        return not (self.path / "mig-config.json").exists()

    def _passed(self, step: str) -> None:
        self.steps.append(step)
        if step == self.kill_at:
            self.kill_at = None
            raise Killed(step)


def simulated(path: Path, profile: str = "hgx-h100") -> Case:
    return Case(backends.simulated(profile, path), path)


def nvml(path: Path, profile: str = "hgx-h100") -> Case:
    return Case(backends.nvml(profile, path / "root"), path)


@pytest.fixture(params=[simulated, nvml])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def test_a_gpu_goes_through_layouts_and_is_not_touched_twice(case: Case) -> None:
    for wanted in (SEVEN, MIXED, EMPTY, MIXED, OFF, EMPTY, OFF):
        assert case.cut(wanted)
        assert case.now == wanted
        assert case.at_rest
        case.steps.clear()
        assert not case.cut(wanted)
        assert case.steps == []


def test_mig_devices_that_stay_in_place_are_kept(case: Case) -> None:
    case.cut(SEVEN)
    kept = case.backend.mig_devices(case.uuid)[:2]
    case.cut(MIXED)
    assert case.backend.mig_devices(case.uuid)[:2] == kept


def test_a_mig_device_that_is_in_use_for_moments_is_waited_for(case: Case) -> None:
    case.cut(SEVEN)
    case.hardware.keep_busy(True)
    slept = case.slept

    def wait(seconds: float) -> None:
        slept.append(seconds)
        case.hardware.keep_busy(False)

    assert dataclasses.replace(case.cutter(), sleep=wait).cut(case.uuid, 0, MIXED)
    assert case.now == MIXED
    assert len(slept) == 1


def test_a_mig_device_that_stays_in_use_leaves_the_gpu_as_it_was(case: Case) -> None:
    case.cut(SEVEN)
    case.hardware.keep_busy(True)
    with pytest.raises(CutError, match=r"(?i)in use") as raised:
        case.cut(MIXED)
    assert raised.value.undone
    assert case.now == SEVEN
    assert case.at_rest


class TestFailures:
    def test_a_creation_that_fails_is_undone(self, tmp_path: Path) -> None:
        case = simulated(tmp_path)
        case.cut(SEVEN)
        fails(case, at=2)
        with pytest.raises(CutError, match="no memory left") as raised:
            case.cut(MIXED)
        assert raised.value.undone
        assert case.now == SEVEN
        assert case.at_rest

    def test_a_gpu_that_cannot_be_put_back_is_tried_again(self, tmp_path: Path) -> None:
        case = simulated(tmp_path)
        case.cut(SEVEN)
        fails(case, at=1, times=99)
        with pytest.raises(CutError, match="no memory left") as raised:
            case.cut(MIXED)
        assert not raised.value.undone
        assert not case.at_rest
        assert not case.cutter().undo(case.uuid)
        case.steps.clear()
        with pytest.raises(CutError, match="no memory left"):
            case.cut(MIXED)
        assert not [step for step in case.steps if step.startswith("cut")], "it is put back first"
        case.backend.faults.before = None  # type: ignore[attr-defined]
        assert case.cutter().undo(case.uuid)
        assert case.now == SEVEN
        assert case.at_rest

    def test_hardware_that_reports_something_else_is_not_believed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case = simulated(tmp_path)
        create, wanted = case.backend.create_mig, Cut(enabled=True, placements=((19, 0), (19, 1)))

        def elsewhere(uuid: str, profile: int, start: int) -> Any:
            return create(uuid, profile, start + 4)

        monkeypatch.setattr(case.backend, "create_mig", elsewhere)
        with pytest.raises(CutError, match=r"was to be .* 19@0, 19@1, and the hardware reports .* 19@4, 19@5; look at"):
            case.cut(wanted)
        assert case.now == OFF

    @pytest.mark.parametrize("make", [simulated, nvml])
    def test_mig_mode_that_takes_a_reset_is_said_and_nothing_is_changed(
        self, make: Callable[..., Case], tmp_path: Path
    ) -> None:
        case = make(tmp_path, "dgx-a100")
        with pytest.raises(CutError, match=r"gpu-0: switching MIG mode on takes a reset .* -mig 1") as raised:
            case.cut(SEVEN)
        assert raised.value.undone
        assert case.now == OFF
        assert case.at_rest

    def test_a_change_of_mig_mode_does_not_stay_pending(self, tmp_path: Path) -> None:
        fake = FakeNvml(profiles.load("dgx-a100"), node="n1", root=tmp_path / "root")
        backend = NvmlBackend(fake, kernel=Kernel(sys=tmp_path / "sys", proc=tmp_path / "proc", dev=tmp_path / "dev"))
        with pytest.raises(BackendError):
            backend.set_mig_mode(backend.inventory().gpus[0].uuid, True)
        assert fake.nvmlDeviceGetMigMode(fake._devices[0]) == [0, 0]
        assert fake.calls["nvmlDeviceSetMigMode"] == 2
        assert pynvml.NVML_ERROR_RESET_REQUIRED == 16

    def test_an_intent_of_an_earlier_boot_says_nothing(self, tmp_path: Path) -> None:
        case = simulated(tmp_path)
        case.kill_at = "cut intended"
        with pytest.raises(Killed):
            case.cut(SEVEN)
        case.boot_id = "boot-2"
        assert case.cutter().intents.load() == {}
        assert case.cut(SEVEN)
        assert case.at_rest

    def test_an_intent_that_cannot_be_read_is_set_aside(self, tmp_path: Path) -> None:
        case = simulated(tmp_path)
        (tmp_path / "mig-config.json").write_text("{")
        assert case.cut(SEVEN)
        assert (tmp_path / "mig-config.json.unreadable").exists()


def fails(case: Case, *, at: int, times: int = 1) -> None:
    """The creation of MIG devices fails, from that one on."""
    count = 0

    def before(operation: str, minor: int) -> None:
        nonlocal count
        count += operation == "create_mig"
        if operation == "create_mig" and at <= count < at + times:
            raise BackendError("no memory left")

    case.backend.faults.before = before  # type: ignore[attr-defined]


# -- kills -------------------------------------------------------------------------------------------------------------

CHANGES = {"cut": (SEVEN, MIXED), "first": (OFF, SEVEN), "off": (MIXED, OFF), "mode": (OFF, EMPTY)}


def steps_of(change: tuple[Cut, Cut], path: Path, *, failing: bool = False) -> list[str]:
    case = simulated(path)
    case.cut(change[0])
    case.steps.clear()
    if failing:
        fails(case, at=2)
        with pytest.raises(CutError):
            case.cut(change[1])
    else:
        case.cut(change[1])
    return case.steps


def kills() -> list[Any]:
    """On NVML only those of a change that creates and destroys."""
    found = []
    for name, change in CHANGES.items():
        with tempfile.TemporaryDirectory() as path:
            for step in steps_of(change, Path(path)):
                found += [
                    pytest.param(make, change, step, id=f"{make.__name__}-{name}-{step}")
                    for make in ((simulated, nvml) if name == "cut" else (simulated,))
                ]
    return found


@pytest.mark.parametrize(("make", "change", "step"), kills())
class TestKilled:
    @pytest.mark.one_in(6)
    def test_the_next_process_ends_as_if_it_had_not_been(
        self, make: Callable[[Path], Case], change: tuple[Cut, Cut], step: str, tmp_path: Path
    ) -> None:
        case = killed(make(tmp_path), change, step)
        case.cut(change[1])
        assert case.now == change[1]
        assert case.at_rest

    @pytest.mark.one_in(6)
    def test_the_next_process_can_bring_the_gpu_back_or_cut_it_otherwise(
        self, make: Callable[[Path], Case], change: tuple[Cut, Cut], step: str, tmp_path: Path
    ) -> None:
        case = killed(make(tmp_path), change, step)
        done = case.at_rest
        assert case.cutter().undo(case.uuid)
        assert case.now == change[1 if done else 0]
        assert case.at_rest
        (tmp_path / "other").mkdir()
        case = killed(make(tmp_path / "other"), change, step)
        other = Cut(enabled=True, placements=((5, 0), (19, 5)))
        assert case.cut(other)
        assert case.now == other
        assert case.at_rest


def killed(case: Case, change: tuple[Cut, Cut], step: str) -> Case:
    case.cut(change[0])
    case.kill_at = step
    with pytest.raises(Killed):
        case.cut(change[1])
    return case


def undo_steps() -> list[str]:
    with tempfile.TemporaryDirectory() as path:
        return [step for step in steps_of(CHANGES["cut"], Path(path), failing=True) if step.startswith("undo")]


@pytest.mark.parametrize("step", undo_steps())
def test_a_kill_while_it_is_undone_is_gone_on_with(step: str, tmp_path: Path) -> None:
    case = simulated(tmp_path)
    case.cut(SEVEN)
    fails(case, at=2)
    case.kill_at = step
    with pytest.raises(Killed):
        case.cut(MIXED)
    case.backend.faults.before = None  # type: ignore[attr-defined]
    assert case.cutter().undo(case.uuid)
    assert case.now == SEVEN
    assert case.at_rest
