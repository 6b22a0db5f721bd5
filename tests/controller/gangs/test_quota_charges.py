"""What claims count for in ResourceQuotas, and what the controller knows of a namespace's use: tables, without a cluster."""

from typing import Any

import msgspec
import pytest

from fairlead.api import legacy, names
from fairlead.controller.gangs.claims import claims, quotas
from fairlead.controller.gangs.membership.members import Member, PodClaim, Stage
from fairlead.controller.watch.tables import NamespaceQuotaTable
from fairlead.kube import resource
from tests.controller.gang_views import claim, pod

GPUS = "gpu.deviceclass.resource.k8s.io/devices"
MIGS = "mig.deviceclass.resource.k8s.io/devices"
EXTENDED = "requests.nvidia.com/gpu"


def device_class(name: str, extended: str | None = None) -> resource.DeviceClass:
    body = {"metadata": {"name": name}, "spec": {"extendedResourceName": extended} if extended else {}}
    return msgspec.convert(body, resource.DeviceClass)


def spec(*requests: dict[str, Any]) -> resource.ResourceClaimSpec:
    return msgspec.convert({"devices": {"requests": list(requests)}}, resource.ResourceClaimSpec)


def exactly(name: str = "gpu", **more: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": name, **more}}


def either(*choices: tuple[str, int]) -> dict[str, Any]:
    return {"name": "r", "firstAvailable": [{"name": f"c{n}", "deviceClassName": name, "count": count} for n, (name, count) in enumerate(choices)]}  # fmt: skip


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([exactly()], {GPUS: 1}),
        ([exactly(count=4)], {GPUS: 4}),
        ([exactly(count=4), exactly(count=1), exactly("mig", count=2)], {GPUS: 5, MIGS: 2}),
        ([exactly(allocationMode="All")], {GPUS: 32}),
        ([exactly(allocationMode="Unknown", count=3)], {GPUS: 0}),
        ([exactly(count=2, adminAccess=True)], {GPUS: 2}),
        ([either(("gpu", 2), ("gpu", 3), ("mig", 7))], {GPUS: 3, MIGS: 7}),
        ([either(("gpu", 2)), exactly(count=1)], {GPUS: 3}),
    ],
)
def test_a_claim_is_charged_as_kubernetes_does(requests: list[dict[str, Any]], devices: dict[str, int]) -> None:
    charge = quotas.claim_charge(spec(*requests), {}, {})
    found = {name: count for name, count in charge.created.items() if name.endswith(quotas.PER_CLASS)}
    assert found == devices
    assert charge.created[quotas.CLAIM_COUNT] == 1
    assert charge.allocated == {}


def test_a_class_with_an_extended_resource_is_charged_under_its_name_when_the_claim_is_created() -> None:
    classes = {"gpu": device_class("gpu", "nvidia.com/gpu")}
    charge = quotas.claim_charge(spec(exactly(count=2)), {names.LEGACY_REQUEST: "fairlead-gpu-2"}, classes)
    assert (charge.created[EXTENDED], charge.allocated) == (2, {})


@pytest.mark.parametrize(
    ("name", "charged"),
    [
        ("fairlead-gpu-3", {EXTENDED: 3}),
        ("fairlead-mig-1g.10gb-2", {"requests.nvidia.com/mig-1g.10gb": 2}),
        ("mine", {}),
    ],
)
def test_a_legacy_limit_is_charged_when_its_claim_has_devices(name: str, charged: dict[str, int]) -> None:
    assert quotas.claim_charge(spec(exactly(count=3)), {names.LEGACY_REQUEST: name}, {}).allocated == charged


def test_claims_of_legacy_limits_carry_the_request() -> None:
    made = msgspec.convert(legacy.template_manifest("fairlead-gpu-2", "ml"), resource.ResourceClaimTemplate)
    assert made.spec.metadata.annotations == {names.LEGACY_REQUEST: "fairlead-gpu-2"}


def test_a_claim_of_a_legacy_limit_says_so_though_a_user_made_the_template_without() -> None:
    """Its name is the webhook's word; a tenant may have created the template first, with nothing in its metadata."""
    body = legacy.template_manifest("fairlead-gpu-2", "ml")
    body["spec"]["metadata"] = {"annotations": {names.LEGACY_REQUEST: "fairlead-gpu-1"}}
    for forged in (body, {**body, "spec": {"spec": body["spec"]["spec"]}}):
        template = msgspec.convert(forged, resource.ResourceClaimTemplate)
        made = claims.manifest(pod("p"), "gpu", template, name="c", raw_spec={})
        assert made["metadata"]["annotations"][names.LEGACY_REQUEST] == "fairlead-gpu-2"


def member(name: str, *claims: PodClaim) -> Member:
    return Member(pod=pod(name), stage=Stage.GATED, claims=claims)


def wanted(key: str, made: resource.ResourceClaim | None = None, count: int = 2) -> PodClaim:
    template = msgspec.convert(legacy.template_manifest(f"fairlead-gpu-{count}", "ml"), resource.ResourceClaimTemplate)
    return PodClaim(name="gpu", key=key, spec=spec(exactly(count=count)), template=template, claim=made)


def test_an_admission_is_charged_for_the_claims_that_it_makes_and_each_once() -> None:
    notes = {names.LEGACY_REQUEST: "fairlead-gpu-2"}
    exists = wanted("b", claim("c", "p", annotations=notes))
    runs = wanted("c", claim("c", "p", node="n1", annotations=notes))
    members = [member("p", wanted("a"), exists), member("q", wanted("a"), runs, wanted("d"))]
    limited = frozenset({GPUS, EXTENDED})
    assert quotas.admission_charge(members, limited, {}) == ((GPUS, 4), (EXTENDED, 6))
    assert quotas.admission_charge(members, frozenset({GPUS}), {}) == ((GPUS, 4),)
    assert quotas.admission_charge(members, frozenset(), {}) == ()


def quota(hard: dict[str, str], name: str = "q", used: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    status = more.pop("status", {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}})
    return {"metadata": {"namespace": "ml", "name": name}, "spec": {"hard": hard, **more}, "status": status}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (quota({GPUS: "8", "pods": "4", "requests.cpu": "1", "count/pods": "2"}, used={GPUS: "3"}), [(GPUS, 8, 3)]),
        (quota({quotas.CLAIM_COUNT: "1k", EXTENDED: "4"}), [(quotas.CLAIM_COUNT, 1000, 0), (EXTENDED, 4, 0)]),
        (quota({GPUS: "4"}, status={"hard": {GPUS: "8"}, "used": {GPUS: "8"}}), [(GPUS, 4, 8)]),
        (quota({GPUS: "9"}, status={"hard": {GPUS: "8"}, "used": {GPUS: "8"}}), [(GPUS, 8, 8)]),
        (quota({GPUS: "9"}, status={}), [(GPUS, 9, 0)]),
        (quota({GPUS: "9"}, scopes=["Terminating"]), []),
    ],
)
def test_what_a_quota_says_of_claims(body: dict[str, Any], found: list[tuple[str, int, int]]) -> None:
    assert [(each.resource, each.limit, each.used) for each in quotas.limits(body)] == found


class Known:
    """A table over these claims."""

    def __init__(self, *claims: resource.ResourceClaim) -> None:
        self.claims = list(claims)
        self.classes: dict[str, resource.DeviceClass] = {}
        self.table = NamespaceQuotaTable(lambda: self.claims, self.classes)

    def used(self, *, writing: int = 0) -> list[int]:
        return [each.used for each in self.table.now({"ml": {GPUS: writing}})]


def test_use_is_what_status_says_or_what_the_known_claims_add_up_to() -> None:
    first, second = claim("a", "p"), claim("b", "q")
    known = Known(first)
    assert known.table.set_quota("ml/q", quota({GPUS: "8"})) == (False, True)
    assert known.table.limited("ml") == frozenset({GPUS})
    assert known.used() == [1]
    known.table.set_claim(None, second)
    known.table.set_claim(second, second)
    assert (known.used(), known.used(writing=3)) == ([2], [5])
    assert known.table.set_quota("ml/q", quota({GPUS: "8"}, used={GPUS: "2"})) == (False, False)
    assert known.table.set_claim(first, None)
    assert known.used() == [2]
    assert known.table.set_quota("ml/q", quota({GPUS: "8"}, used={GPUS: "1"})) == (True, False)
    assert known.used() == [1]


def test_a_lowered_limit_makes_nothing_fit_and_a_raised_or_deleted_one_does() -> None:
    known = Known()
    known.table.set_quota("ml/q", quota({GPUS: "8"}))
    assert known.table.set_quota("ml/q", quota({GPUS: "4"})) == (False, False)
    assert known.table.set_quota("ml/q", quota({GPUS: "6"})) == (True, False)
    assert known.table.set_quota("ml/q", None)[1]
    assert (known.table.now({}), known.table.limited("ml")) == ((), frozenset())
    assert known.table.set_quota("ml/pods", quota({"pods": "1"}, "pods")) == (False, False)


def test_legacy_claims_with_devices_count_beside_what_the_apiserver_counts() -> None:
    notes = {names.LEGACY_REQUEST: "fairlead-gpu-2"}
    held, free = claim("a", "p", node="n1", annotations=notes), claim("b", "q", annotations=notes)
    known = Known(held, free)
    known.table.set_quota("ml/q", quota({EXTENDED: "8"}, used={EXTENDED: "3"}))
    assert known.used() == [5]
    known.classes["gpu"] = device_class("gpu", "nvidia.com/gpu")
    known.table.classes_changed()
    assert known.used() == [3]


def test_claims_of_other_namespaces_do_not_count() -> None:
    known = Known()
    known.table.set_quota("red/q", {**quota({GPUS: "8"}), "metadata": {"namespace": "red", "name": "q"}})
    assert not known.table.set_claim(None, claim("a", "p"))
    assert known.used() == [0]
