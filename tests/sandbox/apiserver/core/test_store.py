"""One order of changes, and the recent past of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.sandbox.apiserver.store import Change, Compacted, Moved, Store

T = "/things"


def thing(name, namespace="", **more):
    return {"metadata": {"name": name, "namespace": namespace}, **more}


def put(store, name, namespace="", **more):
    key = (namespace, name)
    old = store.get(T, key)
    return store.put(T, key, thing(name, namespace, **more), expect=old.revision if old else None)


def names(found):
    return [stored.key[1] for stored in found]


def test_every_change_gets_the_next_revision_and_stamps_it():
    store = Store()
    first = put(store, "a")
    second = put(store, "a", x=1)
    assert second.revision == first.revision + 1
    assert second.obj["metadata"]["resourceVersion"] == str(second.revision)


def test_a_writer_that_expects_another_revision_is_refused_and_nothing_changes():
    store = Store()
    stored = put(store, "a")
    revision = store.revision
    for expect in (None, stored.revision - 1):
        with pytest.raises(Moved):
            store.put(T, ("", "a"), thing("a"), expect=expect)
    with pytest.raises(Moved):
        store.remove(T, ("", "a"), expect=stored.revision - 1)
    assert store.revision == revision


def test_objects_list_in_key_order_and_by_namespace():
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "b"), ("a-b", "c")):
        put(store, name, namespace)
    assert [stored.key for stored in store.entries(T)] == [("a", "b"), ("a", "z"), ("a-b", "c"), ("b", "x")]
    assert names(store.entries(T, "a")) == ["b", "z"]


def test_the_past_is_listed_as_it_was():
    store = Store()
    put(store, "a")
    put(store, "b", x=1)
    then = store.revision
    put(store, "b", x=2)
    stored = put(store, "c")
    first = store.get(T, ("", "a"))
    assert first is not None
    store.remove(T, ("", "a"), expect=first.revision)
    past = store.entries(T, at=then)
    assert names(past) == ["a", "b"]
    assert past[1].obj["x"] == 1
    assert names(store.entries(T)) == ["b", "c"]
    assert stored.revision > then


def test_compacted_history_raises_with_the_oldest_revision_that_is_left():
    store = Store()
    put(store, "a")
    then = store.revision
    put(store, "b")
    store.compact()
    with pytest.raises(Compacted) as error:
        store.since(T, then)
    assert (error.value.wanted, error.value.oldest) == (then, store.revision)
    with pytest.raises(Compacted):
        store.entries(T, at=then)
    assert store.since(T, store.revision) == []


def test_a_full_history_forgets_its_oldest_changes_and_says_so():
    store = Store(history_limit=3)
    start = store.revision
    for index in range(5):
        put(store, "a", x=index)
    with pytest.raises(Compacted):
        store.since(T, start)
    changes = store.since(T, store.revision - 3)
    assert [change.new.obj["x"] for change in changes if change.new] == [2, 3, 4]


def test_a_removed_object_is_told_at_the_revision_of_its_removal():
    store = Store()
    put(store, "a", x=1)
    changes: list[Change] = []
    store.subscribe(T, changes.append)
    last = store.remove(T, ("", "a"), expect=store.revision)
    assert last.obj["metadata"]["resourceVersion"] == str(store.revision)
    assert changes[0].new is None
    assert changes[0].last.obj["x"] == 1


def test_subscribers_hear_changes_in_order_until_they_leave():
    store = Store()
    heard: list[int] = []
    leave = store.subscribe(T, lambda change: heard.append(change.revision))
    put(store, "a")
    put(store, "b")
    leave()
    put(store, "c")
    assert heard == [store.revision - 2, store.revision - 1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"])), max_size=30), st.data())
def test_any_past_revision_lists_what_was_there_then(steps, data):
    store = Store()
    seen: dict[int, dict[str, object]] = {store.revision: {}}
    for name, what in steps:
        stored = store.get(T, ("", name))
        if what == "put":
            put(store, name, at=store.revision)
        elif stored is not None:
            store.remove(T, ("", name), expect=stored.revision)
        seen[store.revision] = {stored.key[1]: stored.obj for stored in store.entries(T)}
    at = data.draw(st.sampled_from(sorted(seen)))
    assert {stored.key[1]: stored.obj for stored in store.entries(T, at=at)} == seen[at]
