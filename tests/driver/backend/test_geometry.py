"""Which GPUs are one NVLink island, and which placements of MIG devices are left beside those that are taken."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.driver.backend import device_names, geometry, profiles
from fairlead.driver.backend.links import islands
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile, NvLink
from fairlead.driver.publish import slices
from tests.support.engine.examples import examples

HGX = SimulatedBackend(profiles.load("hgx-h100"), node="n1").inventory()


class TestIslands:
    def gpu(self, minor: int, *peers: int, mig: bool = False) -> Gpu:
        return Gpu(
            minor=minor,
            uuid=f"GPU-{minor}",
            nvlink=NvLink(version=3, links=len(peers), peers=peers),
            mig_enabled=mig,
        )

    def test_all_to_all_is_one_island(self) -> None:
        assert islands(self.gpu(m, *(p for p in range(8) if p != m)) for m in range(8)) == dict.fromkeys(range(8), 0)

    def test_bridged_pairs_are_two(self) -> None:
        assert islands([self.gpu(0, 1), self.gpu(1, 0), self.gpu(2, 3), self.gpu(3, 2)]) == {0: 0, 1: 0, 2: 1, 3: 1}

    def test_a_cube_mesh_is_split_into_its_quads(self) -> None:
        quads = [(0, 1, 2, 3), (4, 5, 6, 7)]
        across = {0: 4, 1: 5, 2: 6, 3: 7, 4: 0, 5: 1, 6: 2, 7: 3}
        gpus = [self.gpu(m, *(p for p in quad if p != m), across[m]) for quad in quads for m in quad]
        assert islands(gpus) == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}

    def test_a_gpu_in_mig_mode_takes_no_part(self) -> None:
        gpus = [self.gpu(m, *(p for p in range(3) if p != m), mig=m == 1) for m in range(3)]
        assert islands(gpus) == {0: 0, 2: 0}

    def test_a_link_that_only_one_end_sees_is_none(self) -> None:
        assert islands([self.gpu(0, 1), self.gpu(1)]) == {}

    @given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] < edge[1])))
    @settings(max_examples=examples(200), deadline=None)
    def test_every_island_is_a_clique_and_the_answer_does_not_depend_on_order(
        self, edges: set[tuple[int, int]]
    ) -> None:
        peers = {m: sorted({a + b - m for a, b in edges if m in (a, b)}) for m in range(8)}
        gpus = [self.gpu(m, *peers[m]) for m in range(8)]
        found = islands(gpus)
        assert islands(reversed(gpus)) == found
        for one, number in found.items():
            assert all(other == one or other in peers[one] for other, n in found.items() if n == number)
        assert sorted(set(found.values())) == list(range(len(set(found.values()))))


def possible(profiles: Sequence[MigProfile], placed: Sequence[tuple[MigProfile, int]]) -> list[tuple[MigProfile, int]]:
    """Every instance that could be created beside `placed`."""
    return [(p, start) for p in profiles for start in p.starts if geometry.fits(profiles, placed, (p, start))]


class TestGeometry:
    PROFILES = tuple(HGX.gpus[0].mig_profiles)

    @given(st.lists(st.integers(0, 1000), max_size=12))
    @settings(max_examples=examples(200), deadline=None)
    def test_no_two_instances_that_fit_overlap(self, choices: list[int]) -> None:
        placed: list[tuple[MigProfile, int]] = []
        for choice in choices:
            free = possible(self.PROFILES, placed)
            if not free:
                break
            placed.append(free[choice % len(free)])
        covered = [slice_ for one in placed for slice_ in geometry.covered(*one)]
        assert len(covered) == len(set(covered))
        assert all(0 <= slice_ < 8 for slice_ in covered)
        assert sum(p.compute_slices for p, _ in placed) <= 7


class TestFirstFit:
    """A scheduler takes the first published device that fits: the published order is the placement policy."""

    GPU = HGX.gpus[0]
    PROFILES = GPU.mig_profiles
    PUBLISHED = tuple(
        device.name
        for device in slices.build(Inventory(gpus=(GPU,)), slices.Facts(partitionable=frozenset({GPU.uuid}))).devices
        if "-mig-" in device.name
    )

    def first(self, placed: list[tuple[MigProfile, int]], wanted: MigProfile) -> int | None:
        """The start at which first fit places the profile."""
        starts = {device_names.mig_name(0, wanted, start): start for start in wanted.starts}
        fitting = (starts[name] for name in self.PUBLISHED if name in starts)
        return next((s for s in fitting if geometry.fits(self.PROFILES, placed, (wanted, s))), None)

    @given(st.lists(st.integers(0, 6), max_size=8))
    @settings(max_examples=examples(200), deadline=None)
    def test_first_fit_leaves_the_largest_profile_that_any_start_leaves(self, wanted: list[int]) -> None:
        placed: list[tuple[MigProfile, int]] = []

        def largest(profile: MigProfile, start: int) -> tuple[int, int]:
            left = possible(self.PROFILES, [*placed, (profile, start)])
            return max(((p.memory_slices, p.compute_slices) for p, _ in left), default=(0, 0))

        for profile in (self.PROFILES[number] for number in wanted):
            starts = [s for s in profile.starts if geometry.fits(self.PROFILES, placed, (profile, s))]
            first = self.first(placed, profile)
            assert (first is None) == (not starts)
            if first is None:
                continue
            assert first in starts
            assert largest(profile, first) == max(largest(profile, start) for start in starts)
            placed.append((profile, first))

    def test_an_empty_gpu_gives_its_first_small_instance_away_from_the_large_ones(self) -> None:
        assert self.first([], next(p for p in self.PROFILES if p.name == "1g.10gb")) == 6


def test_compute_slices_are_a_budget_beside_the_row_of_memory() -> None:
    """Four single slices leave three: memory slices 4 to 7 are free, and a profile of four compute slices does not fit there."""
    one = MigProfile(name="1g.5gb", id=19, compute_slices=1, memory_slices=1, starts=tuple(range(7)))
    four = MigProfile(name="4g.20gb", id=5, compute_slices=4, memory_slices=4, starts=(0, 4))
    three = MigProfile(name="3g.20gb", id=9, compute_slices=3, memory_slices=4, starts=(0, 4))
    seven = MigProfile(name="7g.40gb", id=0, compute_slices=7, memory_slices=8, starts=(0,))
    placed = [(one, start) for start in range(4)]
    assert not geometry.fits([one, three, four, seven], placed, (four, 4))
    assert geometry.fits([one, three, four, seven], placed, (three, 4))
