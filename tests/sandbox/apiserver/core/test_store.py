"""One order of changes, and the recent past of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.sandbox.apiserver.store import Compacted, Moved, Store

T = "/things"


def thing(name, namespace="", **more):
    return {"metadata": {"name": name, "namespace": namespace}, **more}


def put(store, name, namespace="", **more):
    key = (namespace, name)
    old = store.get(T, key)
    return store.put(T, key, thing(name, namespace, **more), expect=old.revision if old else None)


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
