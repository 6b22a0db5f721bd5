"""coordination.k8s.io/v1 Lease, as far as the election in `lease` reads it."""

from fairlead.kube.objects import Object, Struct


class LeaseSpec(Struct, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    spec: LeaseSpec = LeaseSpec()
