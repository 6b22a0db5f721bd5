"""Input that means harm, or makes no sense: it costs little, ends in a sentence, and never in an object that is not valid."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.bounded.limits import MANIFESTS
from fairlead.cli.imports import command
from fairlead.cli.imports.command import READERS
from fairlead.cli.imports.model import Document, RefusedError, System
from tests.cli.imports.support import SYSTEMS, check, read, sample, tree
from tests.support import cpu
from tests.support.engine.examples import examples

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "holds more than 200000 values, its aliases written out"),
        (MERGES, "holds more than 200000 values, its aliases written out"),
        ("[" * 10_000, "nested more than 64 levels deep"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested more than 64 levels deep"),
        ("{" * 100 + "}" * 100, "nested more than 64 levels deep"),
        ("a: &a [*a]", "the alias *a stands for nothing, or for what holds it"),
        ("a: *b", "the alias *b stands for nothing"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice in one mapping"),
        ("? [a]\n: 1", "unhashable key"),
        ("x" * (MANIFESTS.bytes + 1), "is longer than 16777216 bytes"),
        ("a: \x00", "characters are not allowed"),
        ("a: 2026-13-45", "month must be in 1..12"),
    ],
    ids=lambda value: value[:30],
)
def test_a_hostile_document_is_refused_quickly(text: str, said: str) -> None:
    with cpu.at_most(5.0):
        with pytest.raises(RefusedError) as refused:
            read("kueue", text)
        assert said in str(refused.value)
        assert str(refused.value).startswith("in.yaml: ")
        assert len(str(refused.value)) < 1000


def test_a_deep_chain_of_parents_is_no_recursion() -> None:
    cohorts = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": f"c{n}"},
            "spec": {"parentName": f"c{n + 1}"},
        }
        for n in range(2000)
    ]
    imported = READERS["kueue"]([Document("in.json", each) for each in cohorts])
    assert len(imported.queues) == 2001
    assert imported.queues[0].name == "c2000"


def test_what_no_terminal_prints_is_written_escaped() -> None:
    key = "a\ud800\u202e\x1b[2J"
    shown = key.replace("\ud800", "")  # pydantic takes no half of a character
    tolerations = [{"key": shown, "operator": "Exists"}]
    flavor, queue = (
        json.loads(json.dumps(each)) for each in WHOLE["kueue"] if each["metadata"]["name"] in {"h100", "language"}
    )
    flavor["spec"] = {"tolerations": tolerations, "nodeLabels": {"example.com/pool": shown}}
    queue["spec"].pop("cohortName")
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = [
        {"name": "nvidia.com/gpu", "nominalQuota": 1},
        {"name": key, "nominalQuota": 1},
    ]
    queue["spec"][key] = key
    local = {**WHOLE["kueue"][-3], "metadata": {"name": "x", "namespace": "n"}, "spec": {"clusterQueue": "language"}}
    imported = READERS["kueue"]([Document("in.json", each) for each in (flavor, queue, local)])
    for text in (command.as_yaml(imported, "kueue"), command.as_json(imported), *map(str, imported.notes)):
        text.encode()
        assert not any(each in text for each in ("\u202e", "\x1b"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_names_of_any_form_become_names_of_objects_that_differ(system: System) -> None:
    names = ["Team A", "team-a", "team a", "téam", "A" * 300, "a" * 300, "..", "-", "x\ny"]
    api_version = {
        "kueue": "kueue.x-k8s.io/v1beta2",
        "volcano": "scheduling.volcano.sh/v1beta1",
        "runai": "scheduling.run.ai/v2",
    }
    if system == "yunikorn":
        names = ["Team_A", "team-a", "team@a", "a:b", "a/b"]
        values: list[Any] = [{"partitions": [{"name": "default", "queues": [{"name": name} for name in names]}]}]
    else:
        kind = "Cohort" if system == "kueue" else "Queue"
        values = [{"apiVersion": api_version[system], "kind": kind, "metadata": {"name": name}} for name in names]
    imported = READERS[system]([Document("in.json", each) for each in values])
    assert len({queue.name for queue in imported.queues}) == len(names)
    assert "team-a" in {queue.name for queue in imported.queues}
    check(imported, system)
    assert all("\n" not in str(note) for note in imported.notes)


WHOLE = {system: [each for each in yaml.safe_load_all(sample(system)) if each] for system in SYSTEMS}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["8", "-1", "a/b", "1e99", "9" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, below in inner for each in places(below, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: replaced(each, path[1:], new) if key == path[0] else each for key, each in value.items()}
    return [replaced(each, path[1:], new) if index == path[0] else each for index, each in enumerate(value)]


@pytest.mark.parametrize("system", SYSTEMS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_sample_with_anything_in_any_place_is_refused_in_words_or_becomes_valid_objects(
    system: System, data: st.DataObject
) -> None:
    whole: Any = WHOLE[system]
    for _ in range(data.draw(st.integers(1, 3))):
        whole = replaced(whole, data.draw(st.sampled_from(places(whole)[1:])), data.draw(ANY))
    try:
        imported = READERS[system](
            [Document(f"in.yaml, document {index}", each) for index, each in enumerate(whole, 1)]
        )
    except RefusedError as error:
        said = [str(fault) for fault in error.faults]
    else:
        said = ["imported: "]
        check(imported, system)
        json.loads(command.as_json(imported))
    assert said
    assert all(": " in each and "\n" not in each and len(each) < 3000 for each in said)


AMOUNT = st.integers(0, 40)


@st.composite
def kueue_trees(draw: st.DrawFn) -> tuple[list[Any], dict[str, int]]:
    """Cohorts in a tree, with ClusterQueues in some; and what each root's queues are promised together."""
    api_version = "kueue.x-k8s.io/v1beta2"
    flavors = ["fast", "slow"]
    found: list[Any] = [
        {"apiVersion": api_version, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"nvidia.com/gpu.product": name}}}
        for name in flavors
    ]  # fmt: skip
    count = draw(st.integers(0, 5))
    parents: dict[str, str | None] = {}
    for index in range(count):
        parents[f"cohort-{index}"] = draw(st.sampled_from([None, *(f"cohort-{n}" for n in range(index))]))
    promised: dict[str, int] = {}

    def root(name: str) -> str:
        while (above := parents.get(name)) is not None:
            name = above
        return name

    def groups(owner: str, bounds: list[str]) -> list[Any]:
        chosen = draw(st.lists(st.sampled_from(flavors), unique=True, max_size=2))
        entries = []
        for name in chosen:
            amounts = (
                {"nominalQuota": draw(AMOUNT)}
                | {bound: draw(AMOUNT) for bound in draw(st.sets(st.sampled_from(bounds)))}
                if bounds
                else {"nominalQuota": draw(AMOUNT)}
            )
            promised[f"{owner}/{name}"] = promised.get(f"{owner}/{name}", 0) + amounts["nominalQuota"]
            entries.append({"name": name, "resources": [{"name": "nvidia.com/gpu", **amounts}]})
        return [{"coveredResources": ["nvidia.com/gpu"], "flavors": entries}] if entries else []

    for name, parent in parents.items():
        bounds = ["borrowingLimit", "lendingLimit"] if parent else []
        spec = {"resourceGroups": groups(root(name), bounds)} | ({"parentName": parent} if parent else {})
        found.append({"apiVersion": api_version, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
    for index in range(draw(st.integers(0, 5))):
        cohort = draw(st.sampled_from([None, *parents]))
        owner = f"queue-{index}" if cohort is None else root(cohort)
        chosen: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": groups(owner, ["borrowingLimit", "lendingLimit"] if cohort else []),
        }
        chosen |= {"cohortName": cohort} if cohort else {}
        found.append(
            {"apiVersion": api_version, "kind": "ClusterQueue", "metadata": {"name": f"queue-{index}"}, "spec": chosen}
        )
    return found, promised


@given(made=kueue_trees(), order=st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_any_tree_of_kueue_keeps_what_its_roots_are_promised_and_borrows_nothing_beyond(
    made: tuple[list[Any], dict[str, int]], order: Any
) -> None:
    values, promised = made
    imported = READERS["kueue"]([Document("in.json", each) for each in values])
    check(imported, "kueue")
    engine = tree(imported)
    for place, amount in promised.items():
        name, flavor = place.split("/")
        assert engine.queues[name].deserved(flavor) == amount
        assert min(engine.queues[name].bounds(flavor)) == amount
    shuffled = list(values)
    order.shuffle(shuffled)
    again = READERS["kueue"]([Document("in.json", each) for each in shuffled])
    assert command.objects(again) == command.objects(imported)
