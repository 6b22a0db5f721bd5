"""A program's probes, and its log lines."""

import io
import json
import logging

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fairlead.kube import logs, probes


async def test_probes_answer_with_the_reason_why_not():
    problem: str | None = "the caches are not filled"
    registry = CollectorRegistry()
    Counter("fairlead_things", "things", registry=registry).inc()
    async with (
        probes.serve("127.0.0.1:0", ready=lambda: problem, registry=registry) as served,
        aiohttp.ClientSession() as session,
    ):
        assert served is not None
        async with session.get(f"{served.url}/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        async with session.get(f"{served.url}/readyz") as response:
            assert (response.status, await response.text()) == (503, "the caches are not filled\n")
        problem = None
        async with session.get(f"{served.url}/readyz") as response:
            assert response.status == 200
        async with session.get(f"{served.url}/metrics") as response:
            assert "fairlead_things_total 1.0" in await response.text()


@pytest.mark.parametrize("bind", ["8080", "host:", "host:http", "host:99999"])
def test_a_bind_address_that_is_none_says_what_would_be(bind):
    with pytest.raises(ValueError, match=r"use host:port"):
        probes.parse_bind(bind)


def test_every_line_of_an_operation_carries_its_op_with_begin_end_and_duration():
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    ticks = iter([1.0, 1.25])
    try:
        logs.configure("json", "debug", stream=stream)
        logger = logging.getLogger("fairlead.test")
        logger.info("outside")
        with logs.operation(logger, "review", clock=lambda: next(ticks), new_id=lambda: "0badcafe", pod="ml/a"):
            logging.getLogger("elsewhere").debug("inside %d", 7, extra={"node": "n1"})
    finally:
        root.handlers[:], root.level = before
    outside, begin, inside, end = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert "op" not in outside
    assert (begin["message"], begin["op"], begin["pod"]) == ("review: begin", "0badcafe", "ml/a")
    assert (inside["message"], inside["op"], inside["node"]) == ("inside 7", "0badcafe", "n1")
    assert (end["message"], end["op"], end["duration_ms"]) == ("review: end", "0badcafe", 250.0)
