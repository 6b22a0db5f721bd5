"""What is written, and taken back, where a write of an admission fails: the gang protocol on a writer that refuses."""

from __future__ import annotations

from fairlead.controller.commit.committer import Committer, Outcome
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.engine.types.plan import Admission, Assignment, ClaimAllocation
from fairlead.engine.types.values import PodRef
from fairlead.kube import errors, resource
from fairlead.kube.timing import Time
from tests.controller.gang_views import NOW, Objects, claim, pod, view
from tests.support.parts import shared
from tests.support.protocol import RecordingWriter, caches

REFUSED = errors.Forbidden("refused", status=403)


class Admitted:
    """A gang of waiting pods p0, p1, …, each with a claim of its own, c0, c1, …, that is admitted to node n1."""

    def __init__(self, writer: RecordingWriter, size: int, *, allocated: frozenset[int] = frozenset()) -> None:
        claims = [claim(f"c{n}", f"p{n}") for n in range(size)]
        pods = [pod(f"p{n}", gang="g", size=size, claim=f"c{n}") for n in range(size)]
        self.gang: Gang = view(*pods, objects=Objects(claims))
        refs = [PodRef("ml", f"p{n}", f"uid-p{n}") for n in range(size)]
        self.admission = Admission(
            namespace="ml",
            name="g",
            uid="uid-p0",
            queue="",
            assignments=tuple(Assignment(pod=ref, node="n1") for ref in refs),
            claims=tuple(
                ClaimAllocation(
                    key=f"uid-c{n}",
                    namespace="ml",
                    name=f"c{n}",
                    allocation=resource.AllocationResult(),
                    reserved_for=(ref,),
                    already_allocated=n in allocated,
                )
                for n, ref in enumerate(refs)
            ),
        )
        time = Time(wall=lambda: NOW)
        self.committer = Committer(shared(writer=writer, caches=caches(Objects(claims)), time=time))

    async def outcome(self) -> Outcome:
        return await self.committer.admit(self.gang, self.admission)


async def test_no_pod_is_released_after_the_first_could_not_be_and_everything_is_undone() -> None:
    writer = RecordingWriter({("release_pod", "p0"): REFUSED}, allocate=..., release_pod=True, ensure_gated=True)
    found = await Admitted(writer, 3).outcome()
    assert (found.done, found.released, found.why) == (False, 0, "refused")
    assert writer.of("release_pod") == ["p0"]
    assert writer.of("deallocate") == ["c0", "c1", "c2"]


async def test_a_claim_that_other_pods_use_keeps_its_devices_when_an_admission_is_undone() -> None:
    writer = RecordingWriter({("allocate", "c1"): REFUSED}, allocate=...)
    found = await Admitted(writer, 2, allocated=frozenset({0})).outcome()
    assert (found.done, found.why) == (False, "refused")
    kept = {name: writer.options["deallocate", name]["keep_allocation"] for name in writer.of("deallocate")}
    assert kept == {"c0": True, "c1": False}
    assert writer.of("release_pod") == []
