"""What is known of an eviction while it is written, and where that fails: on a writer that refuses."""

from __future__ import annotations

import pytest

from fairlead.controller.book.book import Book
from fairlead.controller.commit.evictor import EXEMPT_S, Evictor, is_preemptor
from fairlead.controller.gangs.evictions.eviction_marks import Evict
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.values import PodRef
from fairlead.kube import errors
from fairlead.kube.timing import Time
from tests.controller.evictions.test_eviction_steps import MARK, NOW, gang, member
from tests.support.parts import shared
from tests.support.protocol import RecordingWriter, Silent, caches, telemetry

EVICTION = Eviction(
    kind="Reclaim",
    namespace="ml",
    name="old",
    uid="uid-a",
    queue="q",
    pods=(PodRef("ml", "a", "uid-a"), PodRef("ml", "b", "uid-b")),
    whole=True,
    reason=Reason(code=Code.NO_DEVICES, message="because"),
    beneficiary="ml/new",
)
OLD, NEW = gang(member("a"), member("b")), gang(member("new"))
REFUSED = errors.Forbidden("refused", status=403)


class Evictions:
    """Of gang ml/old for gang ml/new."""

    def __init__(self, writer: RecordingWriter) -> None:
        self.book = Book()
        parts = shared(
            writer=writer, caches=caches(), book=self.book, telemetry=telemetry(), time=Time(wall=lambda: NOW)
        )
        self.evictor = Evictor(parts, budgets=RecordingWriter(), moves=Silent())  # type: ignore[arg-type]

    def preempts(self) -> bool:
        """Whether the beneficiary counts as a gang for which others go, though no mark says so."""
        return is_preemptor(self.book["ml", "new"], NEW, None, NOW)


async def test_a_decided_eviction_counts_for_its_beneficiary_until_the_marks_say_it() -> None:
    writer = RecordingWriter()
    old = Evictions(writer)
    old.evictor.assume(OLD.id, EVICTION)
    assert old.preempts()
    await old.evictor.begin(OLD, EVICTION, NOW)
    assert writer.of("mark") == ["a", "b"]
    assert not old.preempts(), "from here on its victims' marks do"
    assert old.book[OLD.id].exempt_until is None


async def test_a_gang_whose_eviction_cannot_be_written_is_no_victim_for_a_minute() -> None:
    old = Evictions(RecordingWriter({("mark", "b"): REFUSED}))
    old.evictor.assume(OLD.id, EVICTION)
    with pytest.raises(errors.Forbidden):
        await old.evictor.begin(OLD, EVICTION, NOW)
    assert old.book[OLD.id].exempt_until == NOW + EXEMPT_S
    assert not old.preempts()


@pytest.mark.parametrize(("partly_gone", "tried"), [(False, ["a"]), (True, ["a", "b"])])
async def test_a_budget_that_refuses_the_first_pod_spares_the_others_only_of_a_gang_that_is_whole(
    partly_gone: bool, tried: list[str]
) -> None:
    writer = RecordingWriter({("evict", "a"): "a PodDisruptionBudget refuses"}, evict="")
    step = Evict(members=(member("a", MARK), member("b", MARK)), mark=MARK, partly_gone=partly_gone)
    await Evictions(writer).evictor.carry_out(OLD, step, queued_since=NOW)
    assert writer.of("evict") == tried
