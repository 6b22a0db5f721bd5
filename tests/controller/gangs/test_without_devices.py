"""Members without devices: which pods are some, which are placed first, and what becomes of an admission that was interrupted. Pure."""

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller.gangs.admission import recovery, requests
from fairlead.controller.gangs.held import vacancies
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.kube import timestamps
from tests.controller.gang_views import NOW, Objects, asked, claim, pod, step, view


def head(name="head", *, size=3, released_s=None, node="", **more):
    """`released_s`: so many seconds ago."""
    notes = {names.GANG: "g", names.GANG_SIZE: str(size), names.MEMBERS: "all"}
    if released_s is not None:
        notes[names.RELEASED_AT] = timestamps.seconds(NOW - released_s)
    return pod(name, template=None, gated=released_s is None, node=node, **{"annotations": notes, **more})


def workers(count, *, size=3, written_s=None, released=(), node=""):
    """`written_s`: so many seconds ago their claims were allocated; None: they wait."""
    held, pods = [], []
    for number in range(count):
        name, mine = f"w{number}", None
        if written_s is not None:
            mine = f"c{number}"
            held.append(claim(mine, name, node="n1", reserved=[name], age_s=written_s))
        free = number in released
        pods.append(pod(name, gang="g", size=size, claim=mine, gated=not free, node=node if free else ""))
    return pods, Objects(held)


def gang(heads, count, **more):
    pods, objects = workers(count, **more)
    return view(*heads, *pods, objects=objects)


def placed(found):
    return [member.pod.metadata.name for member in requests.members_to_place(found)]


def names_of(found):
    members = [each[0] if isinstance(each, tuple) else each for each in found.members]
    return [each.pod.metadata.name for each in members]


def test_a_gated_pod_without_claims_is_a_member_where_it_says_so_and_names_a_gang() -> None:
    found = gang([head()], 2)
    assert [member.pod.metadata.name for member in found.members if member.without_devices] == ["head"]
    assert (found.size, found.present, found.unmanaged) == (3, 3, ())
    for notes in (
        {names.GANG: "g", names.GANG_SIZE: "3"},
        {names.GANG: "g", names.GANG_SIZE: "3", names.MEMBERS: "devices"},
    ):
        found = gang([head(annotations=notes)], 2)
        assert [member.pod.metadata.name for member in found.unmanaged] == ["head"]
    alone = view(head(annotations={names.MEMBERS: "all"}))
    assert not alone.members
    assert len(alone.unmanaged) == 1


def test_a_pod_whose_claim_is_not_known_yet_is_not_without_devices() -> None:
    notes = {names.GANG: "g", names.GANG_SIZE: "3", names.MEMBERS: "all"}
    found = gang([pod("head", template="later", annotations=notes)], 2)
    assert not any(member.without_devices for member in found.members)
    assert requests.blocking_problem(found) is not None


def test_a_running_pod_is_a_member_only_if_the_controller_released_it() -> None:
    """Else whoever writes the annotation on a pod that was never gated would make a gang whole with it."""
    assert gang([head(released_s=10, node="n1")], 2).present == 3
    notes = {names.GANG: "g", names.GANG_SIZE: "3", names.MEMBERS: "all"}
    never = head(released_s=10, node="n1", annotations=notes)
    assert gang([never], 2).present == 2


def test_members_without_devices_are_placed_first_where_the_size_is_less_than_the_pods() -> None:
    assert placed(gang([head("z-head", size=2)], 3, size=2)) == ["z-head", "w0"]


def test_a_head_is_placed_with_its_workers_and_has_no_claim() -> None:
    request = asked(gang([head()], 2))
    assert [(member.pod.name, len(member.claims)) for member in request.members] == [("head", 0), ("w0", 1), ("w1", 1)]


@pytest.mark.parametrize(
    ("heads", "more", "kind", "of"),
    [
        ([head()], {"written_s": 5}, recovery.Undo, ["w0", "w1"]),
        ([head(released_s=4)], {"written_s": 5}, recovery.Complete, ["w0", "w1"]),
        (
            [head("h0", size=4, released_s=4), head("h1", size=4)],
            {"written_s": 5, "size": 4},
            recovery.RollBack,
            ["h0"],
        ),
        ([head(size=5, released_s=50)], {"written_s": 5, "size": 5}, recovery.Complete, ["w0", "w1"]),
        ([head(released_s=4)], {"written_s": 5, "released": (0,)}, recovery.Complete, ["w1"]),
        ([head(released_s=70)], {"written_s": 71, "released": (0, 1), "node": "n1"}, recovery.RollBack, ["head", "w0", "w1"]),
        ([head(released_s=50)], {"written_s": 51, "released": (0, 1), "node": "n1"}, type(None), []),
    ],
    ids=[
        "the claims are written, no head is released",
        "the heads are released",
        "one of two heads is released",
        "workers join a head that ran before",
        "the heads are released, and a worker",
        "a head is not bound in time",
        "a head is bound soon",
    ],
)  # fmt: skip
def test_what_becomes_of_an_interrupted_admission(heads, more, kind, of) -> None:
    found = step(gang(heads, 2, **more))
    assert type(found) is kind
    assert (names_of(found) if found is not None else []) == of


def test_a_head_that_replaces_another_and_does_not_bind_goes_alone() -> None:
    held, pods = [], []
    for number in range(2):
        held.append(claim(f"c{number}", f"w{number}", node="n1", reserved=[f"w{number}"], age_s=310))
        made = pod(f"w{number}", gang="g", size=3, claim=f"c{number}", gated=False, node="n1", phase="Running")
        pods.append(replace(made, status=replace(made.status, start_time=timestamps.seconds(NOW - 300))))
    found = step(view(head(released_s=70), *pods, objects=Objects(held)))
    assert type(found) is recovery.RollBack
    assert names_of(found) == ["head"]


def test_a_head_is_evicted_with_its_gang_and_its_room_is_held_for_its_successor() -> None:
    found = gang([head(released_s=4, node="n1")], 2, written_s=5, released=(0, 1), node="n1")
    held = running_gang(found, requests.GangRecord(), {}, RunningContext())
    assert held is not None
    assert [member.pod.name for member in held.members] == ["head", "w0", "w1"]
    (member,) = [each for each in found.members if each.without_devices]
    vacancy = vacancies.vacancy_of(member)
    assert vacancy is not None
    assert (vacancy.node, vacancy.claims) == ("n1", ())
