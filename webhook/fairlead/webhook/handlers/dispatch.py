"""Which function judges which review: one table for /mutate, one for /validate.

Exists so that the server and `fairlead check` give the same verdicts, and so that no review, whatever it
holds, ends in an exception. Exempt namespaces and subresources are answered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fairlead.webhook.handlers import claims, pods, workloads
from fairlead.webhook.handlers import fairlead_kinds as own
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.objects.pod_templates import SHAPES
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, deny

Handler = Callable[[Review, Facts], Verdict]

MUTATING: Final[Mapping[str, Handler]] = {
    "pods": pods.mutate,
    "pods/ephemeralcontainers": pods.mutate_debug,
    **dict.fromkeys(SHAPES, workloads.mutate),
}
VALIDATING: Final[Mapping[str, Handler]] = {
    "pods": pods.validate,
    "pods/ephemeralcontainers": pods.validate_debug,
    **dict.fromkeys(SHAPES, workloads.validate),
    "resourceclaims.resource.k8s.io": claims.validate,
    "resourceclaimtemplates.resource.k8s.io": claims.validate,
    "deviceclasses.resource.k8s.io": claims.validate_class,
    "queues.fairlead.dev": own.validate_queue,
    "flavors.fairlead.dev": own.validate_flavor,
    "tenancypolicies.fairlead.dev": own.validate_policy,
}


def mutate(review: Review, facts: Facts) -> Verdict:
    return _judge(MUTATING, review, facts)


def validate(review: Review, facts: Facts) -> Verdict:
    return _judge(VALIDATING, review, facts)


def _judge(handlers: Mapping[str, Handler], review: Review, facts: Facts) -> Verdict:
    handler = handlers.get(f"{review.of}/{review.subresource}" if review.subresource else review.of)
    if handler is None or review.operation not in {"CREATE", "UPDATE"}:
        return UNTOUCHED
    if review.namespace and facts.exempt(review.namespace):
        return UNTOUCHED
    try:
        return handler(review, facts)
    except MalformedError as error:
        return deny("malformed", f"{review.subject}: {error}", code=422)
    except RecursionError:
        return deny("malformed", f"{review.subject}: is nested too deeply to be judged", code=422)
