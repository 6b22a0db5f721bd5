"""What pods requested: intervals of what is seen of them, kept beside device time on both databases."""

from __future__ import annotations

import itertools
from contextlib import closing
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairlead.history.ledger.entries import Batch, Kept
from fairlead.history.ledger.pod_account import PodAccount
from fairlead.history.ledger.pod_entries import Holder, PodAmount, PodEnded, PodInterval, PodSeen, PodUse
from fairlead.history.ledger.store.copying import backup
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.schema import LEDGER, POD_AMOUNTS, PODS
from fairlead.history.ledger.store.writer import open_writer
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.ledger import MONDAY_US, interval, reading, writing

ML = Holder("ml", "train", "research", "ada", (("team", "vision"),))
CPU, GIB = PodAmount("cpu", "cpu", Fraction(7, 2)), PodAmount("memory", "memory", Fraction(16))


def at(hour: float) -> int:
    return MONDAY_US + round(hour * HOUR_US)


def seen(*amounts: PodAmount, since: float = 1, counted: float = 0, pod: str = "p", holder: Holder = ML) -> PodSeen:
    uses = tuple(PodUse(amount, at(counted)) for amount in amounts)
    return PodSeen(pod_uid=pod, holder=holder, since_us=at(since), uses=uses)


class Told:
    """An account, and what a store would hold of it."""

    def __init__(self, began: float = 0, *pods: PodSeen) -> None:
        self.rows: dict[tuple[str, PodAmount, int], PodInterval] = {}
        self.begin(began, began, *pods)

    def begin(self, before: float, now: float, *pods: PodSeen, ended: tuple[PodEnded, ...] = ()) -> None:
        """A leader that finds what is kept, known until `before`."""
        kept = [each for each in self.rows.values() if each.end_us is None]
        self.account = PodAccount(kept)
        self.account.resume(at(before), pods, ended, at(now))
        self.take()

    def see(self, now: float, *pods: PodSeen, ended: tuple[PodEnded, ...] = ()) -> None:
        self.account.observe(pods, ended, at(now))
        self.take()

    def take(self) -> None:
        for each in self.account.take():
            self.rows[each.pod_uid, each.amount, each.start_us] = each

    def hours(self, flavor: str, until: float) -> list[tuple[float, float, float]]:
        """From, to and amount of each."""
        return [
            (
                (each.start_us - MONDAY_US) / HOUR_US,
                ((each.end_us or at(until)) - MONDAY_US) / HOUR_US,
                float(each.amount.amount),
            )
            for each in sorted(self.rows.values(), key=lambda each: each.start_us)
            if each.amount.flavor == flavor
        ]


def test_a_pod_counts_from_when_it_was_bound_until_its_containers_ended() -> None:
    told = Told()
    told.see(1.25, seen(CPU, GIB))
    told.see(3, ended=(PodEnded("p", at(2.5)),))
    assert told.hours("cpu", 9) == [(1, 2.5, 3.5)]
    assert told.hours("memory", 9) == [(1, 2.5, 16)], "several flavors count the same pod"


def test_a_flavor_that_comes_later_counts_from_then_on_and_one_that_goes_no_longer() -> None:
    told = Told()
    told.see(1, seen(CPU))
    told.see(4, seen(CPU, GIB, counted=4))
    told.see(6, seen(GIB, counted=4))
    assert told.hours("cpu", 9) == [(1, 6, 3.5)]
    assert told.hours("memory", 9) == [(4, 9, 16)]


def test_a_gang_that_was_admitted_before_any_flavor_counts_from_when_the_flavor_was_made() -> None:
    told = Told()
    told.see(5, seen(CPU, since=1, counted=4.5))
    assert told.hours("cpu", 9) == [(4.5, 9, 3.5)]


def test_nothing_counts_from_before_the_ledger() -> None:
    assert Told(3, seen(CPU, since=1)).hours("cpu", 9) == [(3, 9, 3.5)]


def test_what_a_node_or_a_pod_changes_counts_from_when_it_is_seen() -> None:
    more = CPU._replace(amount=Fraction(5))
    told = Told()
    told.see(1, seen(CPU))
    told.see(2, seen(more))
    told.see(3, seen())  # its node has another label
    told.see(4, seen())
    told.see(5, seen(CPU))
    assert told.hours("cpu", 9) == [(1, 2, 3.5), (2, 3, 5), (4, 9, 3.5)]


def test_growth_is_more_pods() -> None:
    told = Told()
    told.see(1, seen(CPU))
    told.see(2, seen(CPU, since=2, pod="q"))
    assert told.hours("cpu", 9) == [(1, 9, 3.5), (2, 9, 3.5)]


def test_the_next_leader_goes_on() -> None:
    """What is still there was there; what went ends where it was known last, or with its containers; what came counts from its start."""
    told = Told(0, *(seen(CPU, since=0, pod=name) for name in "abc"))
    told.see(2)
    told.begin(2, 5, seen(CPU, since=0, pod="a"), seen(CPU, since=3, pod="d"), ended=(PodEnded("b", at(4)),))
    assert sorted(told.hours("cpu", 9)) == [(0, end, 3.5) for end in (2, 4, 9)] + [(3, 9, 3.5)]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from("ab"),
        st.sampled_from([(), (CPU,), (GIB,), (CPU, GIB), (CPU._replace(amount=Fraction(1)),), None]),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_flavor_never_counts_a_pod_twice_at_once(steps: list[tuple[int, str, tuple[PodAmount, ...] | None, bool]]) -> None:  # fmt: skip
    """None: the pod is gone. True: another leader looks, who was told of this pod alone."""
    told, now, left = Told(), 0.0, set[str]()
    for later, pod, amounts, takeover in steps:
        before, now = now, now + later
        if pod in left:
            continue  # no UID comes back
        if amounts is None:
            left.add(pod)
        pods = () if amounts is None else (seen(*amounts, since=0, pod=pod),)
        gone = (PodEnded(pod, at(now)),) if amounts is None else ()
        if takeover:
            told.begin(before, now, *pods, ended=gone)
        else:
            told.see(now, *pods, ended=gone)
    for pod in "ab":
        for flavor in ("cpu", "memory"):
            own = sorted(
                (each.start_us, each.end_us or at(now))
                for each in told.rows.values()
                if (each.pod_uid, each.amount.flavor) == (pod, flavor)
            )
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(own)), own


# -- the store -----------------------------------------------------------------------------------------------------


def stored(*rows: tuple[PodAmount, float, float | None, str]) -> tuple[PodInterval, ...]:
    return tuple(
        PodInterval(
            pod_uid=pod, holder=ML, amount=amount, start_us=at(since), end_us=None if until is None else at(until)
        )
        for amount, since, until, pod in rows
    )


A_DEVICE = ((1, interval("free", MONDAY_US)),)  # there are no gangs without any: it says since when the ledger is known
ROWS = stored((CPU, 1, 3, "p"), (GIB, 1, None, "p"), (CPU, 20, 28, "q"))


def test_sums_are_amounts_times_the_time_within_the_window(where: str) -> None:
    spot = stored((CPU._replace(capacity_type="spot"), 2, 3, "s"))
    with writing(where) as writer, reading(where) as reader:
        writer.commit(Batch(as_of_us=at(30), intervals=A_DEVICE, pods=ROWS + spot))
        found = {
            (*each.keys, each.resource, each.capacity_type): each.weighed / HOUR_US
            for each in reader.pod_sums(at(2), at(24), ("queue", "flavor", "label=team", "node"))
        }
        assert found == {
            ("research", "cpu", "vision", "", "cpu", None): Fraction(7, 2) * (1 + 4),
            ("research", "cpu", "vision", "", "cpu", "spot"): Fraction(7, 2),
            ("research", "memory", "vision", "", "memory", None): 16 * 22,
        }
        days = {
            (*each.keys,): each.weighed / HOUR_US for each in reader.pod_sums(at(0), 2**62, ("day", "gang", "flavor"))
        }
        assert days["2026-09-22", "train", "cpu"] == Fraction(7, 2) * 4
        assert days["2026-09-22", "train", "memory"] == 16 * 6, "until the ledger is known"
        whole = reader.pod_sums(at(0), at(30), ())
        parts = [*reader.pod_sums(at(0), at(2.3), ()), *reader.pod_sums(at(2.3), at(30), ())]
        assert sum(each.weighed for each in parts) == sum(each.weighed for each in whole), "nothing is lost at a cut"


def test_a_row_is_written_again_as_it_ends_and_a_term_begins_with_those_that_go_on(where: str) -> None:
    with writing(where) as writer:
        writer.commit(Batch(as_of_us=at(30), pods=ROWS))
        writer.commit(Batch(as_of_us=at(30), pods=ROWS))
    with writing(where, "the next leader") as writer:
        assert writer.kept().pods == ROWS[1:2]
        writer.commit(Batch(as_of_us=at(31), pods=stored((GIB, 1, 31, "p"))))
        assert writer.kept() == Kept(as_of_us=at(31), next_number=1, open={})


def test_age_removes_them_with_what_nothing_else_refers_to(where: str) -> None:
    with writing(where) as writer, reading(where) as reader:
        writer.commit(Batch(as_of_us=at(30), intervals=A_DEVICE, pods=ROWS))
        assert writer.prune(at(10)) == 1
        assert {each.flavor for each in reader.pod_sums(0, 2**62, ())} == {"cpu", "memory"}
        writer.commit(Batch(as_of_us=at(31), pods=stored((GIB, 1, 31, "p"))))
        assert writer.prune(at(31) + DAY_US) == 2
        assert writer.prune(at(31) + DAY_US) == 0
        writer.commit(Batch(as_of_us=at(32), pods=ROWS[2:]))
        assert [each.weighed for each in reader.pod_sums(0, 2**62, ("gang",))] == [Fraction(7, 2) * 8 * HOUR_US]


def test_a_ledger_of_the_version_before_gets_the_tables_and_a_copy_has_them(where: str, tmp_path) -> None:
    with closing(open_writer(where, writer="old")) as writer, writer._database.transaction() as connection:
        for table in (PODS, POD_AMOUNTS):
            table.drop(connection)
        connection.execute(LEDGER.update().values(version=3))
    with closing(open_writer(where, writer="new")) as writer:
        assert writer.kept() == Kept(as_of_us=None, next_number=1, open={})
        writer.commit(Batch(as_of_us=at(30), intervals=A_DEVICE, pods=ROWS))
    backup(where, str(tmp_path / "copy.sqlite"))
    with closing(open_reader(where)) as one, closing(open_reader(str(tmp_path / "copy.sqlite"))) as other:
        assert one.pod_sums(0, 2**62, ("gang",)) == other.pod_sums(0, 2**62, ("gang",)) != []
