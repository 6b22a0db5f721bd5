"""What a viewer may see: nothing of other namespaces, in no page, no JSON, no tooltip and no reason."""

import re
from dataclasses import replace

import pytest

from fairlead.engine.explain.explainer import explanation
from fairlead.engine.types.reasons import Code, Holder, PreemptionBlock, PreemptionBlocker, Reason, RequestShortage
from fairlead.ui.model.cluster import cluster
from fairlead.ui.model.gang import events_of
from fairlead.ui.model.scope import EVERYTHING, Redaction, Scope, ScopedFacts, restrict, restrict_events
from fairlead.ui.serve import pages
from tests.support import ui

OWN = Scope(namespaces=frozenset({"team-0"}), cluster=True, queues=True)
NARROW = replace(OWN, cluster=False, queues=False)
NONE = Scope(namespaces=frozenset(), cluster=False, queues=False)
OTHERS = re.compile(r"team-[1-9]|run-(?:[1-9]|11)(?![0-9])|/mig-|gone-team|secret")
WHY = Reason(
    code=Code.PROTECTED,
    message="ResourceClaim team-1/secret-claim is shared with gang team-1/run-1, for which it is being allocated",
    advice="wait until team-2/run-2 ends.",
    requests=(
        RequestShortage(
            claim="team-0/mine", request="gpu/large", wanted=1, per_node_best=0, devices=8, removed=(), detail="x/y"
        ),
    ),
    holders=(
        Holder(gang="team-1/run-1", queue="queue-1", devices=8),
        Holder(gang="team-0/run-0", queue="queue-0", devices=8),
        Holder(gang="gone-team/gone", queue="queue-1", devices=8),
    ),
    blockers=(
        PreemptionBlocker(
            block=PreemptionBlock.MIN_RUNTIME, queue="queue-1", gangs=1, devices=8, example="team-1/run-1"
        ),
        PreemptionBlocker(
            block=PreemptionBlock.MIN_RUNTIME, queue="queue-2", gangs=2, devices=8, example="gone-team/gone.1"
        ),
    ),
)


def shared():
    """A cluster of five tenants, where one tenant's gang waits for those of others."""
    lists = ui.a_cluster(12, waiting=10)
    own = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    own["status"] |= {
        "why": explanation(WHY),
        "message": str(WHY),
        "forecast": own["status"]["forecast"]
        | {"because": "32 samples; it waits for gang team-1/run-1 (queue queue-1)"},
        "conditions": [
            {
                "type": "Preempting",
                "status": "True",
                "message": "3 gangs are evicted for it: team-3/run-3 (queue queue-3)",
            }
        ],
    }
    lists["gangs"].append(ui.gang("secret-gang", "team-3", queue="queue-3", reservedNodes=["node-005"]))
    lists["queues"][1]["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "message": "its budget stops gang team-4/run-4"}
    ]
    return lists


def drawn(facts):
    assert facts.hardware is not None
    return cluster(facts.hardware)


def every_text(
    facts, *, gangs=(("team-0", "wait-00000"), ("team-0", "run-0"), ("team-1", "run-1"), ("team-0", "run-1"))
):
    nodes = [f"node-{number:03}" for number in range(12)]
    for json in (False, True):
        yield pages.overview(facts, json=json).text
        yield from (pages.map_(facts, {"node": node}, json=json).text for node in nodes)
        yield pages.queue_tree(facts, {}, json=json).text
        yield pages.gangs(facts, {}, json=json).text
        yield pages.gangs(facts, {"text": "run"}, json=json).text
        yield from (pages.one_gang(facts, *gang, json=json).text for gang in gangs)


async def test_there_are_other_tenants_names_to_hide():
    found = "".join(every_text(await ui.facts(shared())))
    assert {"team-1", "team-4", "run-1", "gone-team", "secret"} <= set(OTHERS.findall(found))


@pytest.mark.parametrize("scope", [OWN, NARROW, NONE], ids=["cluster and queues", "namespace alone", "nothing"])
async def test_no_answer_names_anything_of_another_tenant(scope):
    for text in every_text(restrict(await ui.facts(shared()), scope)):
        asked = re.sub(r"no gang is called [-\w]+ in namespace [-\w]+", "", text)  # what the address itself holds
        assert not OTHERS.findall(asked)
        if not scope.queues:
            assert not re.search(r"queue-[1-9]", asked)


async def test_what_is_ones_own_is_shown_as_before():
    facts = await ui.facts(shared())
    seen = restrict(facts, OWN)
    assert [raw["metadata"]["name"] for raw in seen.gangs] == ["run-0", "run-10", "wait-00000", "wait-00005"]
    assert seen.gangs[0] == facts.gangs[0]
    assert {pod["metadata"]["namespace"] for pod in seen.pods} == {"team-0"}
    assert {claim.metadata.namespace for claim in seen.claims} == {"team-0"}
    assert restrict(facts, EVERYTHING) is facts


@pytest.mark.slow
async def test_why_a_gang_waits_says_what_holds_its_devices_without_a_name():
    text = pages.one_gang(restrict(await ui.facts(shared()), OWN), "team-0", "wait-00000", json=True).text
    assert "a ResourceClaim of another namespace is shared with a gang of another namespace, for which" in text
    assert "a gang of another namespace (queue queue-1) holds 8" in text
    assert "gang team-0/run-0 (queue queue-0) holds 8" in text
    assert "request gpu/large of claim team-0/mine" in text
    assert "2 gangs with 8 devices, such as a gang of another namespace" in text
    assert "wait until a gang of another namespace ends" in text


async def test_devices_of_others_are_held_on_the_map_and_their_colour_is_their_queue():
    facts = await ui.facts(shared())
    view = drawn(restrict(facts, OWN))
    whole = drawn(facts)
    assert view.counts == whole.counts
    assert view.queues == whole.queues
    holds = [hold for node in view.nodes for gpu in node.gpus for hold in gpu.holds]
    assert {hold.claim.partition("/")[0] for hold in holds} == {"", "team-0"}
    assert all(hold.elsewhere == (not hold.claim) for hold in holds)
    hidden = drawn(restrict(facts, replace(OWN, queues=False)))
    assert hidden.queues == ("", "queue-0")
    text = pages.map_(restrict(facts, OWN), {"node": "node-005"}, json=False).text
    assert "its node is kept for a gang of another namespace" in text
    assert "kept for a gang of another namespace</span>" in text


async def test_what_is_missing_has_a_reason_that_names_the_right():
    facts = await ui.facts(shared())
    text = pages.gangs(restrict(facts, OWN), {}, json=False).text
    assert "gangs of other namespaces than team-0 are not shown: you may not list them" in text
    for show in (pages.gangs, pages.queue_tree, pages.map_):
        shown = show(restrict(facts, NONE), {}, json=True)
        assert shown.status == 403
        assert "ask for a role with the verb list on" in shown.text


async def test_messages_of_events_are_read_with_the_same_eyes():
    facts = await ui.facts(shared())
    gang = facts.gangs[-1]
    events = [ui.event(gang, "Preempting", "evicts team-1/run-1 (queue queue-1), and team-0/run-0 (queue queue-0)")]
    (line,) = events_of(
        restrict_events(events, facts, NARROW),
        kind="Gang",
        namespace=gang["metadata"]["namespace"],
        name=gang["metadata"]["name"],
    )
    assert line.message == "evicts a gang of another namespace, and team-0/run-0 (queue queue-0)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gang b/x", "a gang of another namespace"),
        ("pods of gang b/x.", "pods of a gang of another namespace."),
        ("b/x-1.y: node", "a gang of another namespace: node"),
        ("(a/x, b/y)", "(a/x, a gang of another namespace)"),
        ("pod b/p of queue qb is leaving", "a pod of another namespace of another queue is leaving"),
        ("3/8 pods run", "3/8 pods run"),
        ("7/8 pods run", "a gang of another namespace pods run"),
        ("device gpu.fairlead.dev/n/gpu-0", "device gpu.fairlead.dev/n/gpu-0"),
        ("n/gpu-0 is idle", "n/gpu-0 is idle"),
        ("required:topology.kubernetes.io/rack", "required:topology.kubernetes.io/rack"),
        ("https://b/x", "https://b/x"),
        ("the queue is full", "the queue is full"),
        ("queue qa: b", "queue qa: b"),
    ],
)
def test_which_words_of_a_text_are_names(text, said):
    redaction = Redaction(
        namespaces=frozenset({"a"}), hidden=frozenset({"b", "7"}), queues=frozenset({"qb"}), nodes=frozenset({"n"})
    )
    assert redaction.text(text) == said


async def test_viewers_of_equal_scope_share_what_is_restricted_and_what_did_not_change_stays_the_same_object():
    lists = shared()
    times = ui.Times()
    source, scoped = ui.source(ui.Apiserver(lists), times), ScopedFacts(most=2)
    before = scoped.of(await source.facts(), OWN)
    assert scoped.of(await source.facts(), Scope(namespaces=frozenset({"team-0"}), cluster=True, queues=True)) is before
    times.now += 10
    lists["gangs"] = [raw for raw in lists["gangs"] if raw["metadata"]["name"] != "run-10"]
    after = scoped.of(await source.facts(), OWN)
    assert [raw["metadata"]["name"] for raw in after.gangs] == ["run-0", "wait-00000", "wait-00005"]
    assert after.gangs[1] is before.gangs[2]
    assert after.pods is before.pods
    for scope in (OWN, NARROW, NONE, OWN):
        assert scoped.of(await source.facts(), scope) == restrict(await source.facts(), scope)


async def test_a_name_that_becomes_foreign_is_hidden_from_then_on():
    """What is kept of the reading before must not outlive the rule by which it was made."""
    lists, times = shared(), ui.Times()
    lists["gangs"][-2]["status"]["message"] = "waits for queue queue-9"
    own = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00005")
    own["status"] |= {"message": "it waits behind queue queue-9", "why": {}}
    source, scoped = ui.source(ui.Apiserver(lists), times), ScopedFacts()
    assert "queue-9" in str(scoped.of(await source.facts(), NARROW).gangs)
    lists["gangs"].append(ui.gang("new", "team-2", queue="queue-9"))
    times.now += 10
    assert "queue-9" not in str(scoped.of(await source.facts(), NARROW).gangs)
