"""What traces cost of CPU: the webhook's part of a pod's review, the controller's of a gang, and the export of a span by OTLP.

Each is measured alone, the fastest of several runs: beside what else happens to a gang it is too small to be seen. The export is that of the
SDK, in the thread that exports, to a receiver in another process. `cpu-ms-per-gang` adds them up for a gang of two pods with a claim each,
over all programs: 11 spans, two reviews. Bar: 2 ms a gang, less than a tenth of what the three programs take for it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measured import figure, timed
from fairlead.api import names, trace_context
from fairlead.kube import otlp
from fairlead.kube.tracing import Span, Tracer
from fairlead.webhook.handlers import dispatch
from tests.support.webhook import facts, review

REVIEWS = 500
SPANS = 5_000
RUNS = 5
RECEIVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
"""


def figures() -> list[dict[str, Any]]:
    review_us = (_review_s(1.0) - _review_s(None)) * 1e6
    add_us, export_us = _export_us()
    total_ms = (2 * review_us + 11 * (add_us + export_us)) / 1e3
    return [
        figure("traces/webhook-us-per-pod", review_us, "us"),
        figure("traces/add-us-per-span", add_us, "us"),
        figure("traces/export-us-per-span", export_us, "us"),
        figure("traces/cpu-ms-per-gang", total_ms, "ms", 2.0),
    ]


def _review_s(ratio: float | None) -> float:
    """Seconds that one review of a gang's pod takes."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "annotations": {names.GANG: "train", names.GANG_SIZE: "2"},
        },
        "spec": {
            "containers": [{"name": "main", "image": "train", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "h100"}],
        },
    }
    asked, known = review(pod), facts(traces_ratio=ratio)
    assert (dispatch.mutate(asked, known).trace is None) == (ratio is None)

    def run() -> None:
        for _ in range(REVIEWS):
            dispatch.mutate(asked, known)

    return _best(run) / REVIEWS


def _export_us() -> tuple[float, float]:
    """Microseconds to make and add one span, and to export it."""
    at = trace_context.begin("benchmark", ratio=1.0)
    with _receiver() as url:
        added, exported = [], []
        for _ in range(RUNS):
            tracer = otlp.tracer_for(url, service="benchmark")
            assert tracer is not None
            added.append(timed(lambda: _fill(tracer, at))[0])  # noqa: B023
            tracer.start()
            exported.append(timed(lambda: tracer.close(60.0))[0])  # noqa: B023
            (counts,) = tracer.collect()
            assert {each.labels["outcome"]: each.value for each in counts.samples}["exported"] == SPANS
    return min(added) / SPANS * 1e6, min(exported) / SPANS * 1e6


def _fill(tracer: Tracer, at: trace_context.TraceContext) -> None:
    attributes: dict[str, Any] = {
        "k8s.namespace.name": "ml",
        "fairlead.gang.name": "train",
        "fairlead.queue": "research",
    }
    for number in range(SPANS):
        tracer.add(
            Span(
                name="wait",
                at=at.span("wait", str(number)),
                parent=at.span_id,
                began_s=1.8e9,
                ended_s=1.8e9 + 1,
                attributes={**attributes, "fairlead.position": number},
            )
        )


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _best(call: Callable[[], None]) -> float:
    return min(timed(call)[0] for _ in range(RUNS))
