"""CEL's `authorizer`: checks of the requester's permissions in admission expressions.

Passes fairlead.cel's questions to the server's authorizer. Field and label selectors of a question are ignored: RBAC has
none.
"""

from __future__ import annotations

from fairlead.cel.library.authz import Authorizer, Decision, Question
from fairlead.sandbox.apiserver.kinds.attributes import Attributes
from fairlead.sandbox.apiserver.kinds.base import Services
from fairlead.sandbox.apiserver.kinds.request import Access, UserInfo


def authorizer_of(attributes: Attributes, services: Services) -> Authorizer:
    def ask(question: Question) -> Decision:
        user = attributes.user
        if question.user is not None:  # serviceAccount(namespace, name) asks for another
            user = UserInfo(question.user, _groups(question.user))
        access = Access(
            question.verb,
            question.group,
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
            question.path or "",
        )
        return Decision(services.allows(user, access))

    return Authorizer(ask)


def _groups(user: str) -> tuple[str, ...]:
    parts = user.split(":")
    if parts[:2] != ["system", "serviceaccount"] or len(parts) != 4:
        return ("system:authenticated",)
    return ("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", "system:authenticated")
