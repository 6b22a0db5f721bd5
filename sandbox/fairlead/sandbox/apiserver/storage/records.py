"""What a real apiserver's audit log and metrics count: requests that were answered, and calls of webhooks.

Benchmarks and tests count by these what a cluster pays for a pod. Plain facts; `State.on_completed`,
`State.on_webhook_call` and `State.on_conversion` receive them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.sandbox.apiserver.kinds.request import UserInfo


@dataclass(frozen=True)
class Completed:
    """One request about a resource, answered or refused (`code`), by the user who sent it.

    `verb` is the authorizer's, except "apply" for a server-side apply, as the metrics of a real apiserver have it.
    """

    user: UserInfo
    verb: str
    resource: str
    subresource: str
    code: int
    dry_run: bool


@dataclass(frozen=True)
class WebhookCall:
    """One AdmissionReview that is sent to a webhook."""

    webhook: str
    mutating: bool
    operation: str
    resource: str
    subresource: str


@dataclass(frozen=True)
class Conversions:
    """How many objects were converted for the CEL of one webhook or policy in one request: `object` and `oldObject` each count.

    An apiserver converts them before it looks at an expression, whether or not one reads them: once for all match conditions,
    and of a policy whose match conditions hold once more each for its validations, its messages and its audit annotations.
    Source: k8s.io/apiserver/pkg/admission/plugin/cel/condition.go, policy/validating/validator.go (1.36).
    """

    owner: str
    operation: str
    resource: str
    subresource: str
    objects: int
