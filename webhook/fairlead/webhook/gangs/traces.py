"""The trace context of a gated pod, written as an annotation: the user's where there is one, else one that all members of its gang get.

Members of one gang that have one owner, or none, get the same context, in all replicas and in any order. A value that is no
traceparent is replaced, with a warning: a wrong one must cost neither the pod nor its trace.
"""

from __future__ import annotations

from fairlead.api import names, trace_context
from fairlead.api.trace_context import TraceContext, TraceContextError
from fairlead.webhook.objects.fields import map_at, strings_at, text_at
from fairlead.webhook.objects.pods import controller_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.patch import PatchBuilder


def stamp(
    patch: PatchBuilder, gang: str | None, review: Review, ratio: float | None
) -> tuple[TraceContext | None, tuple[str, ...]]:
    """The pod's context, now in its annotation, and warnings; nothing without traces. Raises MalformedError.

    `ratio`: which part of those traces is sampled that begin here.
    """
    if ratio is None:
        return None, ()
    metadata = map_at(patch.patched, "metadata")
    written = strings_at(metadata, "annotations", "metadata").get(names.TRACEPARENT)
    warnings: tuple[str, ...] = ()
    if written is not None:
        try:
            return trace_context.parse(written), ()
        except TraceContextError as error:
            warnings = (f"metadata.annotations[{names.TRACEPARENT}]: {error}; the gang has a trace of its own",)
    if gang is None:  # a pod by itself, whose name the apiserver may not have made yet
        context = trace_context.begin(review.uid, ratio=ratio)
    else:
        owner = controller_of(metadata)
        uid = "" if owner is None else text_at(owner, "uid", "metadata.ownerReferences")
        context = trace_context.begin(review.namespace, gang, uid, ratio=ratio)
    patch.set(("metadata", "annotations", names.TRACEPARENT), str(context))
    return context, warnings
