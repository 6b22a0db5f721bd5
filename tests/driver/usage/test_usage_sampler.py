"""Busy, idle or unknown: what samples add up to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile, Telemetry
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, MigRecord, MpsRecord
from fairlead.driver.usage.sampler import Sampler, Settings
from fairlead.kube.device_usage import DeviceId, DeviceUsage

GIB = 2**30
SETTINGS = Settings(idle_below_percent=5.0, window_s=300.0, levels=(1.0, 20.0))
PROFILE = MigProfile(name="1g.10gb", id=19, compute_slices=1, memory_slices=1, starts=(0, 1), memory_bytes=10 * GIB)
INVENTORY = Inventory(
    gpus=tuple(
        Gpu(minor=minor, uuid=f"GPU-{minor}", memory_bytes=80 * GIB, mig_profiles=(PROFILE,)) for minor in (0, 1)
    )
)

Sample = tuple[float, float | None, int | None]
"""Time, utilisation, memory."""


def whole(minor: int = 0, **fields: object) -> DeviceRecord:
    return msgspec.structs.replace(
        DeviceRecord(request="gpu", pool="n1", device=f"gpu-{minor}", gpu_uuid=f"GPU-{minor}", minor=minor), **fields
    )


def record(uid: str = "u", *devices: DeviceRecord, state: str = "prepared") -> ClaimRecord:
    return msgspec.convert(
        {"uid": uid, "namespace": "ml", "name": uid, "state": state, "devices": [*(devices or (whole(),))]}, ClaimRecord
    )


def key(device: str = "gpu-0", share: str | None = None) -> DeviceId:
    return DeviceId(names.DRIVER, "n1", device, share)


def reading(minor: int, utilization: float | None, memory: int | None = 0) -> Telemetry:
    return Telemetry(uuid=f"GPU-{minor}", utilization_percent=utilization, memory_used_bytes=memory)


def fed(samples: Sequence[Sample], *, sampler: Sampler | None = None) -> Sampler:
    sampler = sampler or Sampler(SETTINGS)
    for at_s, utilization, memory in samples:
        sampler.observe(at_s, [reading(0, utilization, memory)], [record()], INVENTORY)
    return sampler


def after(samples: Sequence[Sample], now_s: float | None = None) -> DeviceUsage:
    return fed(samples).usages("u", samples[-1][0] if now_s is None else now_s)[key()]


def every(seconds: float, of: float, *, start: float = 0.0, step: float = 5.0) -> list[Sample]:
    """Samples of one utilisation."""
    return [(start + step * number, of, 0) for number in range(int(seconds / step) + 1)]


# -- a device --------------------------------------------------------------------------------------------------------


def test_no_samples_for_longer_than_a_window_are_no_idleness() -> None:
    samples = [(0.0, 0.0, 0), (400.0, 0.0, 0)]
    assert after(samples).state == "Unknown"
    assert after([*every(300, 0)], now_s=300 + 301).state == "Unknown"
    assert after([*every(300, 0)], now_s=300 + 299).state == "Idle"


def test_the_mean_is_of_the_last_window_and_the_peak_of_all_time() -> None:
    samples = [(0.0, 100.0, 7 * GIB), *every(300, 20, start=5), (310.0, 61.0, GIB)]
    found = after(samples)
    assert (found.utilization_percent, found.memory_used_peak_bytes, found.memory_bytes) == (21, 7 * GIB, 80 * GIB)


def test_a_clock_that_is_set_back_neither_stops_nor_proves_anything() -> None:
    samples = [*every(200, 0, start=10_000), *every(295, 0, start=100)]
    assert after(samples).state == "Unknown"
    assert after([*samples, (400.0, 0.0, 0)]).state == "Idle"


utilizations = st.one_of(st.none(), st.sampled_from([0.0, 4.99, 5.0, 100.0]), st.floats(0, 100))
gaps = st.one_of(st.sampled_from([5.0, 60.0, 299.0, 300.0, 301.0]), st.floats(0.5, 400))
series = st.lists(
    st.tuples(gaps, utilizations, st.one_of(st.none(), st.integers(0, 80 * GIB))), min_size=1, max_size=40
)


def timed(drawn: list[tuple[float, float | None, int | None]]) -> list[Sample]:
    at_s, samples = 0.0, []
    for gap, utilization, memory in drawn:
        at_s += gap
        samples.append((at_s, utilization, memory))
    return samples


def expected(samples: Sequence[Sample]) -> str:
    """By the definition, from all samples at once: no state is kept."""
    begin = 0
    for index in range(1, len(samples)):
        if samples[index][0] - samples[index - 1][0] > SETTINGS.window_s or samples[index][1] is None:
            begin = index
    known = [(at_s, value) for at_s, value, _ in samples[begin:] if value is not None]
    state = "Unknown"
    for end in range(len(known)):
        run = []
        for at_s, value in reversed(known[: end + 1]):
            if value >= SETTINGS.idle_below_percent:
                break
            run.append(at_s)
        if not run:
            state = "Busy"
        elif run[0] - run[-1] >= SETTINGS.window_s:
            state = "Idle"
    return state


@given(series)
def test_the_state_is_what_the_definition_says_of_all_samples(
    drawn: list[tuple[float, float | None, int | None]],
) -> None:
    samples = timed(drawn)
    found = after(samples)
    assert found.state == expected(samples)
    assert samples[0][0] <= found.since_s <= samples[-1][0]
    assert found.memory_used_peak_bytes == max((m for _, _, m in samples if m is not None), default=None)
    assert (found.utilization_percent is None) == (samples[-1][1] is None)


def runs_below(samples: Sequence[Sample], level: float) -> float | None:
    """By the definition: when the last run of samples below the level began, if it has lasted for a window."""
    begin: float | None = None
    before: float | None = None
    for at_s, value, _ in samples:
        if value is None or value >= level:
            begin = None
        elif begin is None or (before is not None and at_s - before > SETTINGS.window_s):
            begin = at_s
        before = at_s
    return begin if begin is not None and samples[-1][0] - begin >= SETTINGS.window_s else None


@given(series)
def test_since_when_it_is_below_each_level_is_what_the_definition_says(
    drawn: list[tuple[float, float | None, int | None]],
) -> None:
    samples = timed(drawn)
    known = {level: runs_below(samples, level) for level in (1.0, 5.0, 20.0)}
    assert dict(after(samples).below) == {level: since_s for level, since_s in known.items() if since_s is not None}


def test_a_restart_keeps_the_levels_that_no_sample_was_above() -> None:
    written = {
        key(): DeviceUsage(state="Idle", since_s=0, sampled_at_s=900, below=((1.0, 300.0), (5.0, 0.0), (20.0, 0.0)))
    }
    sampler = fed([(1000.0, 3.0, 0), (1005.0, 0.0, 0)])
    sampler.resume("u", written, 1005.0)
    assert sampler.usages("u", 1005.0)[key()].below == ((5.0, 0.0), (20.0, 0.0)), "3 % was not below 1 %"
    fresh = Sampler(SETTINGS)
    fresh.resume("u", written, 1000.0)
    assert fed([(1000.0, 0.5, 0)], sampler=fresh).usages("u", 1000.0)[key()].below == written[key()].below


@given(series, st.data())
def test_how_samples_are_divided_among_polls_changes_nothing(
    drawn: list[tuple[float, float | None, int | None]], data: st.DataObject
) -> None:
    """Two GPUs: read at once, one by one, in any order, or twice."""
    records = [record("u", whole(0)), record("v", whole(1))]
    at_once, apart = Sampler(SETTINGS), Sampler(SETTINGS)
    for at_s, utilization, memory in timed(drawn):
        both = [reading(0, utilization, memory), reading(1, 42.0, memory)]
        at_once.observe(at_s, both, records, INVENTORY)
        parts = data.draw(
            st.sampled_from([[both], [both[:1], both[1:]], [both[1:], both[:1]], [both, both], [both, []]])
        )
        for part in parts:
            apart.observe(at_s, part, records, INVENTORY)
    for uid in ("u", "v"):
        assert apart.usages(uid, at_s) == at_once.usages(uid, at_s)


# -- a node ----------------------------------------------------------------------------------------------------------


def test_only_prepared_claims_count_and_admin_access_does_not() -> None:
    sampler = Sampler(SETTINGS)
    records = [record("a", whole(0)), record("b", whole(1), state="preparing"), record("c", whole(1, admin=True))]
    sampler.observe(0, [reading(0, 50), reading(1, 50)], records, INVENTORY)
    assert [list(sampler.usages(uid, 0)) for uid in "abc"] == [[key()], [], []]
    assert not sampler.usages("a", 0)[key()].shared
    sampler.observe(5, [reading(0, 50)], [record("a", whole(0), state="unpreparing")], INVENTORY)
    assert sampler.usages("a", 5) == {}


def test_shares_have_the_gpus_utilisation_and_the_memory_of_their_own_programs() -> None:
    sampler = Sampler(SETTINGS)
    records = [record(uid, whole(0, share_id=uid, consumed={"memory": 20 * GIB})) for uid in ("s1", "s2")]
    for at_s, own in ((0.0, {"s1": 7 * GIB}), (5.0, {"s1": 3 * GIB})):
        read = dataclasses.replace(reading(0, 50, 9 * GIB), memory_by_claim=own)
        sampler.observe(at_s, [read], records, INVENTORY)
    one, two = (sampler.usages(uid, 5)[key(share=uid)] for uid in ("s1", "s2"))
    assert [(found.shared, found.utilization_percent, found.memory_bytes) for found in (one, two)] == [
        (True, 50, 20 * GIB),
        (True, 50, 20 * GIB),
    ]
    assert (one.memory_used_bytes, one.memory_used_peak_bytes) == (3 * GIB, 7 * GIB)
    assert (two.memory_used_bytes, two.memory_used_peak_bytes) == (None, None), "not known is not all of the GPU"


def test_limits_of_mps_are_those_of_each_program() -> None:
    mps = MpsRecord(devices=("gpu-0",), active_thread_percentage=15, memory_mib={"gpu-0": 20 * 1024})
    share = whole(0, share_id="s", consumed={"memory": 20 * GIB, "multiprocessors": 20})
    held = msgspec.structs.replace(record("u", share), mps=mps)
    gpu = dataclasses.replace(INVENTORY.gpus[0], multiprocessors=132)
    sampler = Sampler(SETTINGS)
    sampler.observe(0, [reading(0, 50, 0)], [held], dataclasses.replace(INVENTORY, gpus=(gpu,)))
    found = sampler.usages("u", 0)[key(share="s")]
    assert (found.memory_limit_bytes, found.multiprocessors_limit) == (20 * GIB, 20)


def test_a_mig_device_has_its_own_memory_and_no_utilisation() -> None:
    mig = MigRecord(profile="1g.10gb", profile_id=19, start=0, size=1, made="live", uuid="MIG-a", gi_id=1, ci_id=0)
    device = whole(0, device="gpu-0-mig-1g10gb-19-0", mig=mig)
    readings = [reading(0, None, 30 * GIB), Telemetry(uuid="MIG-a", memory_used_bytes=3 * GIB)]
    sampler = Sampler(SETTINGS)
    sampler.observe(0, readings, [record("u", device)], INVENTORY)
    found = sampler.usages("u", 0)[key("gpu-0-mig-1g10gb-19-0")]
    assert (found.state, found.utilization_percent) == ("Unknown", None)
    assert (found.memory_used_peak_bytes, found.memory_bytes, found.shared) == (3 * GIB, 10 * GIB, False)
    unread = Sampler(SETTINGS)
    unread.observe(0, readings[:1], [record("u", device)], INVENTORY)
    assert unread.usages("u", 0)[key("gpu-0-mig-1g10gb-19-0")].memory_used_peak_bytes is None


def test_a_claim_that_is_prepared_again_begins_anew() -> None:
    sampler = fed([(0, 90, 9 * GIB)])
    sampler.observe(5, [reading(0, 0)], [], INVENTORY)
    fed([(10, 0.0, 1)], sampler=sampler)
    found = sampler.usages("u", 10)[key()]
    assert (found.state, found.memory_used_peak_bytes) == ("Unknown", 1)


# -- a restart -------------------------------------------------------------------------------------------------------


def written(state: str, since_s: float, peak: int = 5 * GIB) -> dict[DeviceId, DeviceUsage]:
    return {
        key(): DeviceUsage(state=state, since_s=since_s, sampled_at_s=since_s, memory_used_peak_bytes=peak)  # type: ignore[arg-type]
    }


def test_what_was_written_before_a_restart_goes_on() -> None:
    for before in ([], [(1000.0, 0.0, 0)]):  # samples that came before the claim could be read
        sampler = fed(before)
        sampler.resume("u", written("Idle", 100), 1000)
        fed([(1005, 0.0, 1)], sampler=sampler)
        found = sampler.usages("u", 1005)[key()]
        assert (found.state, found.since_s, found.memory_used_peak_bytes) == ("Idle", 100, 5 * GIB)


def test_samples_after_a_restart_count_more_than_what_was_written() -> None:
    sampler = fed([(1000.0, 80.0, 0)])
    sampler.resume("u", written("Idle", 100), 1001)
    assert (sampler.usages("u", 1001)[key()].state, sampler.usages("u", 1001)[key()].since_s) == ("Busy", 1000)
    sampler = fed([(1000.0, None, 0)])
    sampler.resume("u", written("Idle", 100), 1001)
    assert sampler.usages("u", 1001)[key()].state == "Unknown"


def test_a_device_of_which_there_is_no_sample_yet_is_not_shown() -> None:
    sampler = Sampler(SETTINGS)
    sampler.resume("u", written("Busy", 100), 1000)
    assert sampler.usages("u", 1000) == {}


@given(series, st.integers(0, 39))
def test_a_restart_never_turns_idle_into_busy(drawn: list[tuple[float, float | None, int | None]], at: int) -> None:
    """What a restart may cost is the window that was under way: a device becomes idle later, and never without a window."""
    samples = timed(drawn)
    head, tail = samples[: at + 1], samples[at + 1 :]
    sampler = Sampler(SETTINGS)
    sampler.resume("u", fed(head).usages("u", head[-1][0]), head[-1][0])
    fed(tail, sampler=sampler)
    now, straight = sampler.usages("u", samples[-1][0]), after(samples)
    if not tail:
        assert now == {}
        return
    assert now[key()].memory_used_peak_bytes == straight.memory_used_peak_bytes
    if now[key()].state != straight.state:
        assert (straight.state, now[key()].state) in {("Idle", "Busy"), ("Idle", "Unknown")}
