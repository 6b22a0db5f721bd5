"""Traces of gangs on a whole cluster: the three programs as processes, and a real receiver of OTLP over HTTP."""

import asyncio
import contextlib

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="fairlead[otel] is not installed")

from fairlead.api import names, trace_context
from fairlead.kube.resources import JOBS, PODS, QUEUES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from fairlead.sandbox.cluster import NodeSpec
from tests.support.otlp import Receiver, receiving
from tests.support.sandbox import View, cluster, gang_of, job, pod, template, until

NODES = (NodeSpec("n1", profile="hgx-h100"),)
LONG = ("sleep", "infinity")
SUBMISSION = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def flags(url, *more):
    endpoint = f"--otlp-endpoint={url}"
    return {"driver": (endpoint,), "webhook": (endpoint, *more), "controller": (endpoint, *more, "--no-forecast")}


@contextlib.asynccontextmanager
async def traced(receiver=None, *more):
    async with (
        receiving(receiver) as spans,
        cluster(*NODES, flags=flags(spans.url, *more)) as made,
        made.client() as client,
    ):
        await client.create(RESOURCE_CLAIM_TEMPLATES, template("two", count=2))
        queue = {"metadata": {"name": "all"}, "spec": {"namespaceSelector": {}}}
        await client.create(QUEUES, {"apiVersion": names.API_VERSION, "kind": "Queue", **queue})
        yield spans, View(client)


async def spans_of(receiver, name, count, **wanted):
    await until(lambda: len(receiver.of(name=name, **wanted)) >= count, what=f"{count} spans {name!r}")
    found = receiver.of(name=name, **wanted)
    assert len(found) == count, found
    return found


@pytest.mark.slow
async def test_a_gang_of_two_pods_is_one_trace_from_the_webhook_to_running_containers():
    async with traced() as (receiver, view):
        member = pod("x", claim="two", command=LONG, annotations=gang_of("train", 2))
        await view.client.create(JOBS, job("train", member, size=2))
        (gang,) = await spans_of(receiver, "gang", 1)
        prepares = await spans_of(receiver, "prepare", 2)
        assert {each.trace for each in receiver.spans} == {gang.trace}
        assert gang.parent == ""
        assert gang.error is None
        assert gang.attributes["fairlead.gang.name"] == "train"
        assert gang.attributes["fairlead.gang.size"] == 2
        assert gang.attributes["fairlead.queue"] == "all"

        one = {name: (await spans_of(receiver, name, 1))[0] for name in ("wait", "decide", "commit", "start")}
        steps = {name: (await spans_of(receiver, name, 1))[0] for name in ("write claims", "release pods")}
        admits = await spans_of(receiver, "admit", 2)
        assert {each.parent for each in (*one.values(), *admits, *prepares)} == {gang.id}
        assert {each.parent for each in steps.values()} == {one["commit"].id}
        assert len({each.id for each in receiver.spans}) == len(receiver.spans) == 11
        services: dict[str, set[str]] = {each.service: set() for each in receiver.spans}
        for each in receiver.spans:
            services[each.service].add(each.name)
        assert services == {
            "fairlead-webhook": {"admit"},
            "fairlead-controller": {"gang", *one, *steps},
            "fairlead-driver": {"prepare"},
        }

        first, last = min(each.began for each in admits), max(each.ended for each in admits)
        assert gang.began - 1 <= first <= last <= one["wait"].ended
        assert one["wait"].ended <= one["decide"].began <= one["decide"].ended <= one["commit"].began
        assert one["commit"].began == steps["write claims"].began
        assert steps["write claims"].ended == steps["release pods"].began
        assert steps["release pods"].ended == pytest.approx(one["commit"].ended, abs=1e-3)
        assert one["commit"].ended == one["start"].began
        for each in prepares:
            assert one["commit"].began <= each.began <= each.ended <= one["start"].ended == gang.ended
            assert each.attributes["k8s.node.name"] == "n1"
            assert each.attributes["fairlead.devices"] == 2

        pods = await view.all(PODS, "default")
        contexts = {each["metadata"]["annotations"][names.TRACEPARENT] for each in pods}
        assert contexts == {f"00-{gang.trace}-{gang.id}-01"}, "the workload's own spans can go below it"
        claims = await view.all(RESOURCE_CLAIMS, "default")
        assert {each["metadata"]["annotations"][names.TRACEPARENT] for each in claims} == contexts


@pytest.mark.slow
async def test_a_gang_hangs_under_its_users_submission_and_waits_with_a_reason():
    async with traced() as (receiver, view):
        blocker = pod("blocker", command=LONG, annotations=gang_of("blocker", 4), claim="two")
        await view.client.create(JOBS, job("blocker", blocker, size=4))
        await spans_of(receiver, "gang", 1)
        member = pod("x", claim="two", command=LONG, annotations=gang_of("late", 2))
        late = job("late", member, size=2)
        late["metadata"]["annotations"] = {names.TRACEPARENT: SUBMISSION}  # on the Job: it reaches the pods
        await view.client.create(JOBS, late)
        await view.gang("late", "Waiting")
        await view.client.delete(JOBS, "blocker", "default", propagation="Background")
        of = trace_context.parse(SUBMISSION)
        (gang,) = await spans_of(receiver, "gang", 1, trace=f"{of.trace_id:032x}")
        assert gang.parent == f"{of.span_id:016x}"
        (wait,) = await spans_of(receiver, "wait", 1, trace=gang.trace)
        assert wait.attributes["fairlead.reason"]
        assert wait.attributes["fairlead.reason.message"]
        assert wait.attributes["fairlead.position"] >= 1
        assert wait.parent == gang.id
        assert {each.parent for each in await spans_of(receiver, "prepare", 2, trace=gang.trace)} == {gang.id}
        assert {each.parent for each in await spans_of(receiver, "admit", 2, trace=gang.trace)} == {gang.parent}


@pytest.mark.parametrize(("status", "delay_s"), [(503, 0.0), (200, 30.0)])
@pytest.mark.slow
async def test_an_endpoint_that_is_down_or_slow_delays_no_gang(status, delay_s):
    async with traced(Receiver(status=status, delay_s=delay_s)) as (receiver, view):
        for number in range(3):
            await view.client.create(
                PODS, pod(f"p{number}", claim="two", command=("sleep", "0.1"), annotations=gang_of(f"g{number}", 1))
            )
        for number in range(3):
            await view.phase(f"p{number}", "Succeeded")
        await until(lambda: receiver.requests, what="a request")
        assert receiver.spans == []


@pytest.mark.slow
async def test_what_users_write_as_traceparent_costs_neither_pod_nor_trace():
    hostile = ["", "00-", "x" * 60_000, SUBMISSION.upper(), f"{SUBMISSION}-more", "00-" + "0" * 32 + SUBMISSION[35:]]
    async with traced() as (receiver, view):
        for number, text in enumerate(hostile):
            annotations = {**gang_of(f"g{number}", 1), names.TRACEPARENT: text}
            await view.client.create(PODS, pod(f"p{number}", claim="two", annotations=annotations))
        for number in range(len(hostile)):
            await view.phase(f"p{number}", "Succeeded")
        gangs = await spans_of(receiver, "gang", len(hostile))
        assert len({each.trace for each in gangs}) == len(hostile)
        assert {each.parent for each in gangs} == {""}


@pytest.mark.slow
async def test_gangs_that_are_not_sampled_cost_no_span():
    async with traced(None, "--trace-ratio=0") as (receiver, view):
        await view.client.create(PODS, pod("quiet", claim="two"))
        asked = {names.TRACEPARENT: SUBMISSION}
        await view.client.create(PODS, pod("asked", claim="two", annotations=asked))
        await view.phase("quiet", "Succeeded")
        await view.phase("asked", "Succeeded")
        await spans_of(receiver, "gang", 1)
        await asyncio.sleep(0)
        assert {each.trace for each in receiver.spans} == {SUBMISSION[3:35]}
        assert (await view.pod("quiet"))["metadata"]["annotations"][names.TRACEPARENT].endswith("-00")
