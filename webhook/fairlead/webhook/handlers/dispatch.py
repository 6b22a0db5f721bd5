"""Which handler judges which review: one table for /mutate, one for /validate.

The server and `fairlead check` both come through here, so their verdicts are the same. No review, whatever it holds, ends in an
exception. Exempt namespaces, operations other than CREATE and UPDATE, and objects that are too large are answered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fairlead import cel
from fairlead.api.base import ManifestError
from fairlead.webhook.handlers import kinds, pods, workloads
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.objects.pod_templates import ROLLED, WORKLOADS
from fairlead.webhook.policy.refusals import RefusedError
from fairlead.webhook.review import size
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, deny

COMPILE_TOKENS_MAX: Final = 2_000
"""Tokens of selectors that one review compiles; a token takes up to 0.03 ms, and an object may hold 1,500 (`cel.load_fault`)."""
STEPS_MAX: Final = 20_000
"""Of all evaluations of tenants' selectors in one review, on the cluster's kinds of devices; a step takes up to 1 µs."""

Handler = Callable[[Review, Facts], Verdict]
"""May raise RefusedError, MalformedError or ManifestError."""

MUTATING: Final[Mapping[str, Handler]] = {
    "pods": pods.mutate,
    "pods/ephemeralcontainers": pods.mutate_ephemeral,
    **dict.fromkeys(WORKLOADS, workloads.mutate),
}
VALIDATING: Final[Mapping[str, Handler]] = {
    "pods": pods.validate,
    "pods/ephemeralcontainers": pods.validate_ephemeral,
    **dict.fromkeys(WORKLOADS, workloads.validate),
    **dict.fromkeys(ROLLED, workloads.validate_rollout),
    "resourceclaims.resource.k8s.io": kinds.validate,
    "resourceclaimtemplates.resource.k8s.io": kinds.validate,
    "deviceclasses.resource.k8s.io": kinds.validate_class,
    "queues.fairlead.dev": kinds.validate_queue,
    "flavors.fairlead.dev": kinds.validate_flavor,
    "tenancypolicies.fairlead.dev": kinds.validate_policy,
}


def mutate(review: Review, facts: Facts) -> Verdict:
    return _judge(MUTATING, review, facts)


def validate(review: Review, facts: Facts) -> Verdict:
    return _judge(VALIDATING, review, facts)


def _judge(handlers: Mapping[str, Handler], review: Review, facts: Facts) -> Verdict:
    key = f"{review.group_resource}/{review.subresource}" if review.subresource else review.group_resource
    handler = handlers.get(key)
    if handler is None or review.operation not in {"CREATE", "UPDATE"}:
        return UNTOUCHED
    if review.namespace and facts.exempt(review.namespace):
        return UNTOUCHED
    try:
        too_large = size.faults(review.group_resource, review.object or {})
        if too_large:
            return deny("size", *review.about(too_large), code=422)
        with cel.allowance(review.namespace, tokens=COMPILE_TOKENS_MAX, steps=STEPS_MAX):
            return handler(review, facts)
    except RefusedError as refused:
        return refused.verdict
    except ManifestError as error:  # of our own kinds; it names its subject
        return deny(review.kind.lower(), str(error), code=422)
    except cel.AllowanceError as error:
        return deny("allowance", *review.about([str(error)]), code=429)
    except MalformedError as error:
        return deny("malformed", *review.about([str(error)]), code=422)
    except RecursionError:
        return deny("malformed", *review.about(["is nested too deeply to be judged"]), code=422)
