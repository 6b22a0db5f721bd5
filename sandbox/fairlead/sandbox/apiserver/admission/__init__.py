"""Admission: the plugins, webhooks and policies between a decoded request and the store.

Enters: `Attributes` of a request. Leaves: the object as mutated, warnings, audit annotations; or Rejected.
The order is the real one. Mutating: the built-in plugins (service account, tolerations, priority), then mutating
webhooks, a second time for those with reinvocation. Validating: admission policies, then validating webhooks, last quotas.
Entrance: `chain(services)`; the server calls `close()` when it stops.
Source: k8s.io/apiserver/pkg/server/options/admission.go, pkg/kubeapiserver/options/plugins.go (1.36).
"""

from __future__ import annotations

from fairlead.sandbox.apiserver.admission.calling import Caller, Resolver, endpoints_resolver
from fairlead.sandbox.apiserver.admission.matching import Converted
from fairlead.sandbox.apiserver.admission.plugins import Quotas, Store, mutate_pod
from fairlead.sandbox.apiserver.admission.policies import Policies
from fairlead.sandbox.apiserver.admission.webhooks import Called, Webhooks
from fairlead.sandbox.apiserver.kinds.base import Attributes, Services
from fairlead.sandbox.apiserver.kinds.request import clone

REGISTRATIONS = "admissionregistration.k8s.io"


class Chain:
    """All of admission for one apiserver."""

    def __init__(
        self, services: Services, resolve: Resolver, called: Called, converted: Converted, store: Store
    ) -> None:
        self._caller = Caller(resolve, services.random)
        self._webhooks = Webhooks(services, self._caller, called, converted)
        self._policies = Policies(services, converted)
        self._quotas = Quotas(services, store)

    async def mutate(self, attributes: Attributes) -> None:
        mutate_pod(attributes)
        if _exempt(attributes):
            return
        before = clone(attributes.object)
        await self._webhooks.mutate(attributes)
        if attributes.object != before:
            mutate_pod(attributes)

    async def validate(self, attributes: Attributes) -> None:
        if _exempt_from_policies(attributes):
            return
        self._policies.validate(attributes)
        if _exempt(attributes):
            return
        await self._webhooks.validate(attributes)
        self._quotas.charge(attributes)

    async def close(self) -> None:
        """End the connections to webhooks."""
        await self._caller.close()


def _exempt_from_policies(attributes: Attributes) -> bool:
    """Policies and their bindings are, and reviews; webhook configurations are not. Source: policy/generic/plugin.go."""
    return _exempt(attributes) and not attributes.kind.kind.endswith("WebhookConfiguration")


def _exempt(attributes: Attributes) -> bool:
    """From webhooks: registrations of policies and webhooks, or they could not be removed again; so are reviews."""
    group = attributes.kind.group
    return group == REGISTRATIONS or group in {"authentication.k8s.io", "authorization.k8s.io"}


def chain(
    services: Services,
    *,
    store: Store,
    resolve: Resolver | None = None,
    called: Called = lambda _: None,
    converted: Converted = lambda _: None,
) -> Chain:
    """Admission with these services. `resolve` gives the address of a webhook's Service (default: its Endpoints);
    `called` receives every call of a webhook, `converted` what CEL costs; `store` replaces a ResourceQuota whose use has changed.
    """
    return Chain(services, resolve or endpoints_resolver(services), called, converted, store)
