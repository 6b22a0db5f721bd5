"""The thread that exports spans: it is bounded, adding to it never waits, and its endpoint may be down, slow or missing."""

import logging
import sys
import threading
import time

import pytest
from prometheus_client import CollectorRegistry

from fairlead.api import trace_context
from fairlead.kube import otlp, tracing
from fairlead.kube.otlp import TracingError
from fairlead.kube.tracing import Span, Tracer
from tests.support import cpu
from tests.support.otlp import receiving

AT = trace_context.begin("test", ratio=1.0)


def span(number=0, *, at=AT, **more):
    return Span(name=f"s{number}", at=at.span(str(number)), parent=at.span_id, began_s=1.0, ended_s=2.5, **more)


class Exporter:
    """Keeps what it gets; `problem` is its answer, after `gate` is set."""

    def __init__(self, problem=""):
        self.problem = problem
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.stopped = False

    def export(self, spans):
        self.entered.set()
        self.gate.wait()
        self.batches.append([each.name for each in spans])
        if isinstance(self.problem, Exception):
            raise self.problem
        return self.problem

    def stop(self):
        self.stopped = True
        self.gate.set()


def counts(tracer):
    registry = CollectorRegistry()
    registry.register(tracer)
    found = {
        outcome: registry.get_sample_value("fairlead_trace_spans_total", {"outcome": outcome})
        for outcome in tracing.OUTCOMES
    }
    return {outcome: int(number or 0) for outcome, number in found.items() if number}


def started(exporter, **more):
    tracer = Tracer(exporter, where="http://collector/v1/traces", **({"interval_s": 0.01} | more))
    tracer.start()
    return tracer


def test_spans_are_exported_in_order_and_in_bounded_batches():
    exporter = Exporter()
    tracer = started(exporter, batch_max=4)
    for number in range(10):
        tracer.add(span(number))
    tracer.close()
    assert [name for batch in exporter.batches for name in batch] == [f"s{number}" for number in range(10)]
    assert max(map(len, exporter.batches)) <= 4
    assert counts(tracer) == {"exported": 10}


def test_while_the_endpoint_does_not_answer_adding_costs_microseconds_and_what_is_too_much_is_dropped():
    exporter = Exporter()
    exporter.gate.clear()
    tracer = started(exporter, queue_max=100, batch_max=10)
    tracer.add(span())
    assert exporter.entered.wait(10)
    with cpu.at_most(1.0):
        for number in range(10_000):
            tracer.add(span(number))
    assert counts(tracer) == {"dropped": 9_900}
    exporter.gate.set()
    tracer.close()
    assert counts(tracer) == {"dropped": 9_900, "exported": 101}


def test_the_end_of_a_program_waits_for_a_slow_endpoint_only_so_long(caplog):
    exporter = Exporter()
    exporter.gate.clear()
    tracer = started(exporter)
    tracer.add(span())
    assert exporter.entered.wait(10)
    began = time.monotonic()
    tracer.close(timeout_s=0.1)
    assert time.monotonic() - began < 5
    assert exporter.stopped
    assert "has not answered for 0 s" in caplog.text
    tracer.add(span())  # too late, and no error


@pytest.mark.parametrize("problem", ["connection refused", OSError("no route")])
def test_an_endpoint_that_fails_is_one_line_until_it_works_again(problem, caplog):
    caplog.set_level(logging.INFO)
    exporter = Exporter(problem)
    tracer = started(exporter, batch_max=1)
    for number in range(5):
        tracer.add(span(number))
    while sum(counts(tracer).values()) < 5:
        time.sleep(0.001)
    exporter.problem = ""
    tracer.add(span())
    tracer.close()
    assert counts(tracer) == {"failed": 5, "exported": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert str(problem) in caplog.text


# -- the exporter ------------------------------------------------------------------------------------------------------


async def test_a_span_arrives_as_it_was_made():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="fairlead[otel] is not installed")
    async with receiving() as receiver:
        tracer = otlp.tracer_for(receiver.url, service="fairlead-test", instance="one")
        other = trace_context.begin("other", ratio=1.0)
        async with tracing.exporting(tracer) as spans:
            assert spans is not None
            more = {"attributes": {"text": "ä\ud800", "count": 3, "yes": True}, "error": "no \ud800", "links": (other,)}
            spans.add(span(1, **more))
            spans.add(Span(name="root", at=AT, parent=None, began_s=3.0, ended_s=2.0))
        (root,), (one,) = receiver.of(name="root"), receiver.of(name="s1")
        assert (one.service, one.trace, one.parent) == ("fairlead-test", f"{AT.trace_id:032x}", root.id)
        assert (one.began, one.ended) == (1.0, 2.5)
        assert one.attributes == {"text": "ä?", "count": 3, "yes": True}
        assert one.error == "no ?"
        assert one.links == (f"{other.trace_id:032x}",)
        assert root.parent == ""
        assert root.ended == root.began, "clocks that differ make no span of negative length"
        assert root.error is None


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/otlp/", "https://collector/otlp/v1/traces"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
    ],
)
def test_the_endpoint_is_the_base_of_the_collectors_paths(endpoint, url):
    assert otlp.traces_url(endpoint) == url


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("collector:4318", "is no URL"),
        ("grpc://collector:4317", "is no URL"),
        ("http://", "is no URL"),
        ("http://c:99999", "is no URL"),
        ("http://c:4318?x=1", "is no URL"),
        ("http://user:secret@c", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_endpoint_that_is_none_is_refused_and_no_password_is_repeated(endpoint, why):
    with pytest.raises(TracingError) as raised:
        otlp.tracer_for(endpoint, service="x")
    assert why in str(raised.value)
    assert "secret" not in str(raised.value)


def test_without_the_extra_asking_for_traces_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TracingError, match=r"pip install 'fairlead\[otel\]'.*--build-arg TRACES=yes"):
        otlp.tracer_for("http://collector:4318", service="x")
    assert otlp.tracer_for(None, service="x") is None
