"""Events reach `kubectl describe`, and never flood or block."""

import asyncio

from fairlead.kube.events import QUEUE_MAX, EventRecorder, Regarding


def about(name: str = "a", namespace: str = "ml") -> Regarding:
    return Regarding(api_version="v1", kind="Pod", name=name, namespace=namespace, uid=f"uid-{name}")


async def written(recorder: EventRecorder) -> None:
    task = asyncio.create_task(recorder.run())
    await recorder.drain()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_names_object_reason_and_component(client, server, time):
    server.answer({"metadata": {"name": "e"}}, 201)
    recorder = EventRecorder(client, "fairlead-controller", clock=time.clock, wall=time.clock)
    recorder.record(about(), "Waiting", "no 8 free GPUs on one node", type="Warning")
    await written(recorder)
    method, path, _, body, _ = server.seen[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/ml/events")
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "ml", "uid": "uid-a"}
    assert (body["type"], body["reason"], body["count"]) == ("Warning", "Waiting", 1)
    assert body["source"] == {"component": "fairlead-controller"}


async def test_the_same_event_again_raises_its_count(client, server, time):
    server.answer({"metadata": {"name": "e"}})
    recorder = EventRecorder(client, "c", clock=time.clock, wall=time.clock)
    for _ in range(3):
        recorder.record(about(), "Waiting", "still")
    await written(recorder)
    assert [(method, body["count"]) for method, _, _, body, _ in server.seen] == [
        ("POST", 1),
        ("PATCH", 2),
        ("PATCH", 3),
    ]
    time.now += 3600
    recorder.record(about(), "Waiting", "still")
    await written(recorder)
    assert server.seen[-1][0] == "POST"


async def test_ten_thousand_events_of_one_namespace_neither_delay_nor_drop_those_of_others(client, server, time):
    server.answer({"metadata": {"name": "e"}}, 201)
    recorder = EventRecorder(client, "c", clock=time.clock, wall=time.clock)
    for number in range(10_000):
        recorder.record(about(f"red-{number}", "red"), "Waiting", "mine")
    for number in range(3):
        recorder.record(about(f"blue-{number}", "blue"), "Waiting", "mine")
    assert recorder.dropped == 10_003 - QUEUE_MAX
    await written(recorder)
    places = [place for place, (_, path, *_) in enumerate(server.seen) if path == "/api/v1/namespaces/blue/events"]
    assert places == [1, 3, 5], "each after one of the other namespace"
    names = [body["involvedObject"]["name"] for _, path, _, body, _ in server.seen if "/red/" in path]
    assert names == [f"red-{number}" for number in range(QUEUE_MAX - 3)]
