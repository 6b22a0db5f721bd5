"""Deployments and DaemonSets with devices: nothing is changed or refused, their pods are judged one by one. Warnings only.

What goes wrong with them goes wrong at the next rollout, weeks later: so it is said when the strategy is written.
"""

from __future__ import annotations

from fairlead.api.clocks import running_out
from fairlead.api.rollouts import waits_for_itself
from fairlead.webhook.legacy.requests import legacy_limits
from fairlead.webhook.objects.fields import dotted, map_at, object_at
from fairlead.webhook.objects.pod_templates import ROLLED_TEMPLATE
from fairlead.webhook.policy import policies
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, pod_claims
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow


def validate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    object_ = review.object or {}
    spec = map_at(object_at(object_, ROLLED_TEMPLATE), "spec", dotted(ROLLED_TEMPLATE))
    translated = legacy_limits(spec, facts.drivers).any and policies.legacy_requests(facts.policies) == "Translate"
    if not translated and all(claim.managed is not Managed.YES for claim in pod_claims(review.namespace, spec, facts)):
        return UNTOUCHED
    waits = waits_for_itself(review.kind, map_at(object_, "spec"))
    warnings = [*([waits] if waits else ()), *running_out(review.kind, object_)]
    return allow("rollout", warnings=warnings)
