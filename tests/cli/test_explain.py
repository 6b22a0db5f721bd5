"""What people read of queues, gangs and pods: from status alone, the same words as everywhere else."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.engine.explain.explainer import PARTS_MAX, explanation
from fairlead.engine.types.reasons import Code, Holder, NearMiss, NodeShortage, Reason
from fairlead.kube import resources, timestamps
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.ui.model import explanations, gangs, plain_pods, queues
from tests.support.commands import invoke

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-one-gpu"

NOW = 1_800_000_000.0

REASON = Reason(
    code=Code.NO_DEVICES,
    message="12 wanted, 4 free",
    advice="wait until gangs end",
    could_ever_fit=True,
    near_miss=NearMiss(members_placed=4, members_wanted=12),
    holders=(Holder(gang="vision/resnet", queue="vision", devices=12), Holder(gang="", queue="", devices=2)),
    nodes=(NodeShortage(need="cpu", nodes=3),),
)


def gang(name="bert", phase="Waiting", *, position=2, reason=REASON, conditions=(), **status):
    shown = {
        "phase": phase,
        "reason": "DevicesInUse",
        "message": str(reason),
        "queue": "language",
        "members": 12,
        "ready": 0,
    }
    if phase == "Waiting":
        shown |= {"position": position, "why": explanation(reason)}
    return {
        "metadata": {"namespace": "language", "name": name, "creationTimestamp": timestamps.seconds(NOW - 300)},
        "spec": {"size": 12},
        "status": shown | {"conditions": list(conditions)} | status,
    }


def queue(name, *, parent=None, used=0, fair=0, **spec):
    return {
        "metadata": {"name": name},
        "spec": {"flavors": [{"flavor": "h100", "deserved": 8}]} | ({"parent": parent} if parent else {}) | spec,
        "status": {
            "running": 1,
            "waiting": 2,
            "usage": [{"flavor": "h100", "allocated": used, "demand": used, "fairShare": fair}],
        },
    }


def parts(explanation):
    return {part.title: part.lines for part in explanation.parts}


# -- a gang ----------------------------------------------------------------------------------------------------------


def test_a_waiting_gang_is_told_of_with_place_cause_holders_and_cure():
    its_own = Holder(gang="language/bert", queue="language", devices=14)  # what is kept free for it
    kept = replace(REASON, holders=(its_own, *REASON.holders))
    explanation = explanations.gang_explanation(gang(reason=kept), now=NOW)
    assert explanation.headline == "gang language/bert: Waiting in queue language, 2nd in line (DevicesInUse)"
    shown = parts(explanation)
    assert shown["What blocks it"] == ("12 wanted, 4 free",)
    assert shown["Devices it could use are held by"] == (
        "gang vision/resnet (queue vision) holds 12",
        "claims outside any gang hold 2",
    )
    assert shown["In detail"] == ("4 of 12 members would fit now", "ruled out 3 nodes: cpu")
    assert shown["What would change it"] == ("wait until gangs end",)
    assert shown["Waited"] == ("5m",)


def test_a_gang_that_can_never_run_is_told_not_to_wait():
    never = Reason(code=Code.NEVER_FITS, message="too big", advice="ask for less", could_ever_fit=False)
    shown = parts(explanations.gang_explanation(gang(reason=never), now=NOW))
    assert shown["What would change it"][1].startswith("waiting will not help")


def test_a_gang_that_awaits_nodes_is_told_since_when_and_until_when():
    condition = {"type": "AwaitingNodes", "status": "True", "message": "nodes are expected by then"}
    until = timestamps.seconds(NOW + 120)
    nodes = {"state": "Asked", "mode": "Visible", "flavor": "h100", "since": timestamps.seconds(NOW - 60),
             "expected": until, "message": f"nodes are expected by {until}: the median of 3 scale-ups"}  # fmt: skip
    shown = parts(explanations.gang_explanation(gang(conditions=[condition], nodesAwaited=nodes), now=NOW))
    assert shown["Nodes for it"] == (
        f"asked for since {nodes['since']}, by mode Visible of flavor h100",
        f"Nodes are expected by {until} (2m left): the median of 3 scale-ups",
    )
    assert "Also" not in shown
    resting = nodes | {"state": "Rests", "message": "no nodes came"}
    shown = parts(explanations.gang_explanation(gang(nodesAwaited=resting), now=NOW))
    assert shown["Nodes for it"] == ("No nodes came",)


def test_an_eviction_is_told_once_to_a_gang_that_still_runs():
    said = "to be evicted at 2027-01-15T08:00:00Z: reclaimed for gang ml/x: because"
    condition = {"type": "Evicting", "status": "True", "message": said, "lastTransitionTime": timestamps.seconds(NOW)}
    raw = gang(phase="Running", conditions=[condition], message=f"12 of 12 members run; {said}")
    shown = parts(explanations.gang_explanation(raw, now=NOW))
    assert shown["Why"] == (f"12 of 12 members run; {said}",)
    assert "Also" not in shown
    assert gangs.line(raw, now=NOW).why == said


def test_what_is_kept_of_a_reason_is_bounded():
    long = Reason(code=Code.NO_DEVICES, message="m" * 9000, holders=(REASON.holders[0],) * 50, nodes=REASON.nodes * 50)
    kept = explanation(long)
    assert (len(kept["message"]), len(kept["holders"]), len(kept["details"])) == (4096, PARTS_MAX, PARTS_MAX)
    assert kept["details"][-1] == "and 35 more"


# -- a list of gangs -------------------------------------------------------------------------------------------------


def test_waiting_gangs_come_first_in_their_order():
    lines = [gangs.line(gang(name, phase, position=place), now=NOW) for name, phase, place in (("a", "Running", None), ("b", "Waiting", 3), ("c", "Waiting", 1))]  # fmt: skip
    assert [line.name for line in gangs.order(lines)] == ["c", "b", "a"]


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")])
def test_ages_are_as_kubectl_prints_them(seconds, text):
    assert gangs.age(seconds) == text


# -- queues ----------------------------------------------------------------------------------------------------------


def test_the_tree_has_parents_before_children_and_loses_no_queue():
    found = [
        queue("b", parent="a"),
        queue("a"),
        queue("lost", parent="gone"),
        queue("x", parent="y"),
        queue("y", parent="x"),
    ]
    assert [(line.name, line.depth) for line in queues.tree(found)] == [
        ("a", 0),
        ("b", 1),
        ("lost", 0),
        ("x", 0),
        ("y", 0),
    ]


def test_a_queue_is_told_of_with_its_shares_and_who_waits_in_which_order():
    raws = [gang("late", position=5), gang("early", position=1), gang("run", "Running", ready=12)]
    shown = parts(explanations.queue_explanation(queue("language", used=8, fair=16), raws, now=NOW))
    assert shown["Shares"] == ("h100: uses 8 of a fair share of 16; deserves 8; with what waits it asks for 8",)
    assert [line.split(" ")[1] for line in shown["Waiting, in order"]] == ["language/early", "language/late"]
    assert shown["Running"] == ("language/run: 12 of 12 pods, 5m",)


# -- a pod -----------------------------------------------------------------------------------------------------------


def pod(*, gates=(), conditions=(), annotations=None):
    return {
        "metadata": {"namespace": "language", "name": "p", "annotations": annotations or {}},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }


def test_a_pod_is_explained_by_its_gang():
    explanation = explanations.pod_explanation(pod(gates=[names.ADMISSION_GATE]), gang(), now=NOW)
    assert explanation.more[0].headline.startswith("gang language/bert")
    assert plain_pods.gang_of(pod(annotations={names.GANG: "bert"})) == "bert"
    assert plain_pods.gang_of(pod()) == "p"


def test_a_pod_without_a_gang_is_told_whose_it_is():
    shown = parts(explanations.pod_explanation(pod(), None, now=NOW))
    assert "kube-scheduler alone places it" in shown["Fairlead"][0]
    shown = parts(explanations.pod_explanation(pod(gates=[names.ADMISSION_GATE]), None, now=NOW))
    assert "see that it runs and leads" in shown["Fairlead"][0]
    ungated = pod()
    ungated["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    shown = parts(explanations.pod_explanation(ungated, None, now=NOW))
    assert f"created without the scheduling gate {names.ADMISSION_GATE}" in shown["Fairlead"][0]
    assert "create the pod again" in shown["Fairlead"][0]


# -- against an apiserver --------------------------------------------------------------------------------------------


def ask(*words):
    done = invoke(list(words))
    return done.exit_code, done.output


async def test_the_commands_read_a_cluster_and_say_what_they_may_not(tmp_path: Path):
    async with (
        Cluster(ClusterOptions(workdir=tmp_path, nodes=(), run_programs=False)) as cluster,
        cluster.client() as client,
        cluster.client(names.CONTROLLER_USER) as controller,
    ):
        admin, jane = ["--kubeconfig", str(cluster.kubeconfig())], ["--kubeconfig", str(cluster.kubeconfig("jane"))]
        code, text = await asyncio.to_thread(ask, "queues", *admin)
        assert (code, "no queues" in text) == (0, True)
        await client.create(resources.NAMESPACES, {"metadata": {"name": "language"}})
        objects = ((client, resources.QUEUES, queue("language", used=8, fair=8)), (controller, resources.GANGS, gang()))
        for writer, resource, raw in objects:
            made = {
                **raw,
                "metadata": {key: raw["metadata"][key] for key in raw["metadata"] if key != "creationTimestamp"},
            }
            await writer.create(resource, {key: made[key] for key in ("metadata", "spec")})
            await writer.patch(
                resource, raw["metadata"]["name"], {"status": raw["status"]},
                namespace=raw["metadata"].get("namespace"), subresource="status",
            )  # fmt: skip
        code, text = await asyncio.to_thread(ask, "queues", *admin)
        assert code == 0
        assert "language  h100" in text
        code, text = await asyncio.to_thread(ask, "gangs", "-A", "-o", "json", *admin)
        assert (code, json.loads(text)[0]["position"]) == (0, 2)
        code, text = await asyncio.to_thread(ask, "explain", "bert", "-n", "language", *admin)
        assert (code, "12 wanted, 4 free" in text) == (0, True)
        code, text = await asyncio.to_thread(ask, "explain", "queue/language", *admin)
        assert (code, "1. " not in text, "2. language/bert" in text) == (0, True, True)
        code, text = await asyncio.to_thread(ask, "explain", "nobody", "-n", "language", *admin)
        assert (code, "no gang, pod or queue is called nobody" in text) == (1, True)
        code, text = await asyncio.to_thread(ask, "explain", "job/x", *admin)
        assert (code, "write pod/NAME, gang/NAME or queue/NAME" in text) == (2, True)
        code, text = await asyncio.to_thread(ask, "check", str(EXAMPLE), *jane)
        assert (code, "you may not list deviceclasses.resource.k8s.io" in text) == (2, True)
        code, text = await asyncio.to_thread(ask, "gangs", "-n", "language", *jane)
        assert (code, "you may not list gangs.fairlead.dev in namespace language" in text) == (1, True)
        code, text = await asyncio.to_thread(ask, "queues", *jane)  # everyone may see the queues
        assert (code, "language  h100" in text) == (0, True)
        code, text = await asyncio.to_thread(ask, "queues", "--context", "nowhere", *admin)
        assert (code, "nowhere" in text) == (1, True)


def test_a_time_to_come_says_how_long_that_is():
    text = f"queue red: within min-runtime until {timestamps.seconds(NOW + 300)} (gang red/greedy with 8 devices)"
    shown = explanations.with_time_left(text, now=NOW)
    assert shown == text.replace("Z (gang", "Z (5m left) (gang")
    assert explanations.with_time_left(text, now=NOW + 301) == text
    assert explanations.with_time_left("until 9999-99-99T99:99:99Z", now=NOW) == "until 9999-99-99T99:99:99Z"


def test_members_without_devices_are_named_with_what_they_wait_for():
    raw = gang(withoutDevices=["bert-head-0"])
    (part,) = (each for each in explanations.gang_explanation(raw, now=NOW).parts if "without devices" in each.title)
    assert part.lines == (
        "bert-head-0: held until the others have their devices, and started with them (fairlead.dev/members: all)",
    )
    runs = explanations.gang_explanation(gang(phase="Running", withoutDevices=[f"h{n}" for n in range(12)]), now=NOW)
    assert any("h9 and 2 more: held until the others had" in line for each in runs.parts for line in each.lines)
    without = explanations.gang_explanation(gang(), now=NOW).parts
    assert not any(each.lines and each.lines[0] for each in without if "without devices" in each.title)
