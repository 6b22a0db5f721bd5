"""Garbage collection decisions: an object goes when all its owners are gone, and not before."""

from fairlead.sandbox.controllers import garbage
from fairlead.sandbox.controllers.garbage import Delete, DropFinalizer, DropOwners, Keep, Orphan


def obj(uid, *, owners=(), deleting=False, finalizers=(), blocks=True):
    metadata = {
        "name": uid,
        "uid": uid,
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "blockOwnerDeletion": blocks}
            for owner in owners
        ],
        "finalizers": list(finalizers),
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata}


def decide(subject, *others, dependents=()):
    known = {other["metadata"]["uid"]: other for other in others}
    return garbage.decide(subject, owner=known.get, dependents=dependents)


def test_an_object_whose_owner_lives_is_kept():
    assert decide(obj("claim", owners=["pod"]), obj("pod")) == Keep()


def test_an_object_whose_only_owner_is_gone_is_deleted_in_the_background():
    assert decide(obj("claim", owners=["pod"])) == Delete("claim", "Background")


def test_one_living_owner_is_enough_and_the_dead_reference_goes():
    assert decide(obj("claim", owners=["pod", "gone"]), obj("pod")) == DropOwners(frozenset({"gone"}))


def test_an_owner_that_waits_in_the_foreground_takes_its_dependents_first():
    owner = obj("job", deleting=True, finalizers=[garbage.FOREGROUND])
    pod = obj("pod", owners=["job"])
    assert decide(pod, owner) == Delete("pod", "Background")
    assert decide(pod, owner, dependents=[obj("claim", owners=["pod"])]) == Delete("pod", "Foreground")
    assert decide(owner, dependents=[pod]) == Keep()
    assert decide(owner) == DropFinalizer(garbage.FOREGROUND)


def test_a_dependent_that_does_not_block_does_not_hold_up_its_owner():
    owner = obj("job", deleting=True, finalizers=[garbage.FOREGROUND])
    assert decide(owner, dependents=[obj("pod", owners=["job"], blocks=False)]) == DropFinalizer(garbage.FOREGROUND)


def test_an_owner_that_is_deleted_with_orphan_lets_its_dependents_go_free():
    dependent = obj("pod", owners=["job"])
    assert decide(obj("job", deleting=True, finalizers=[garbage.ORPHAN]), dependents=[dependent]) == Orphan(
        (dependent,)
    )
