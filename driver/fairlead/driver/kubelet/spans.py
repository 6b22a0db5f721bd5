"""The span of one claim's prepare, in the trace that the claim's annotation names.

kubelet names no pods to a driver, and the claim is all that is read from the apiserver. So only claims with that annotation have a
span: those that the controller makes, and those of users who write it on their claims or templates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fairlead.api import trace_context
from fairlead.kube.limits import Clock
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.tracing import OFF, Span, Tracing

ERROR_CHARS_MAX = 1_000


@contextlib.contextmanager
def prepare_span(tracing: Tracing, claim: ResourceClaim, began_s: float, *, wall: Clock) -> Iterator[None]:
    """What is done inside is part of the claim's prepare, which began at `began_s` (unix seconds). Errors pass through."""
    trace = None if tracing is OFF else trace_context.of(claim.metadata.annotations)
    if trace is None or not trace.sampled:
        yield
        return
    error = ""
    try:
        yield
    except BaseException as raised:
        error = (str(raised) or type(raised).__name__)[:ERROR_CHARS_MAX]
        raise
    finally:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        tracing.add(
            Span(
                name="prepare",
                at=trace.span("prepare", claim.metadata.uid, repr(began_s)),
                parent=trace.span_id,
                began_s=began_s,
                ended_s=wall(),
                attributes={
                    "k8s.namespace.name": claim.metadata.namespace,
                    "fairlead.claim": claim.metadata.name,
                    "fairlead.devices": len(results),
                    "fairlead.pods": len(claim.status.reserved_for),
                    **({"k8s.node.name": results[0].pool} if results else {}),
                },
                error=error,
            )
        )
