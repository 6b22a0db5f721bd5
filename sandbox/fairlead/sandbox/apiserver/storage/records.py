"""What a real apiserver's audit log and metrics count: requests that were answered, and calls of webhooks.

Benchmarks and tests count by these what a cluster pays for a pod. Plain facts; `State.on_completed` and
`State.on_webhook_call` receive them.
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
