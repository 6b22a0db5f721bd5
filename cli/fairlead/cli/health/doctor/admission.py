"""Causes where objects are admitted: the webhook and its certificate, and the fence around our devices' allocation."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from fairlead.api import names
from fairlead.cel.devices.requests import others_fault, selectors_fault
from fairlead.cel.errors import AllowanceError
from fairlead.cli.health import values
from fairlead.cli.health.doctor.finding import Finding, Stops
from fairlead.cli.health.doctor.programs import INSTALL, WEBHOOK, state
from fairlead.cli.health.seen import Seen, results_of
from fairlead.kube import nulls, timestamps
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    ENDPOINT_SLICES,
    MUTATING_WEBHOOKS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
    Raw,
)

CONFIGURATION = "fairlead"
SERVICE = "fairlead-webhook"
FENCE = "fairlead-allocation-fence"
SOON_S = 7 * 86_400.0
T = TypeVar("T")
_WEBHOOK_PODS = f"kubectl -n {names.NAMESPACE} logs deployment/{SERVICE}"


def registration(seen: Seen) -> Iterator[Finding]:
    missing = [
        f"{resource.kind} {CONFIGURATION}"
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        if not seen.gap(resource) and seen.one(resource, CONFIGURATION) is None
    ]
    if missing:
        yield Finding(
            code="WebhookNotRegistered",
            stops=Stops.EVERYTHING,
            what=f"the webhook is not registered ({' and '.join(missing)} not there): new pods get no gate, and no devices",
            evidence=state(seen, WEBHOOK),
            next_step=f"it registers itself once it runs: {_WEBHOOK_PODS}; or {INSTALL}",
        )


def reachability(seen: Seen) -> Iterator[Finding]:
    """What the apiserver says of a pod for trial is believed; without a trial, whether the Service has addresses."""
    if seen.trial.answered is False:
        tls = any(word in seen.trial.message for word in ("x509", "certificate", "tls:"))
        yield Finding(
            code="WebhookCertificate" if tls else "WebhookUnreachable",
            stops=Stops.EVERYTHING,
            what="the apiserver does not trust the webhook's certificate: pods for GPUs are refused"
            if tls
            else "the apiserver does not reach the webhook: pods for GPUs are refused",
            evidence=(f"a pod created for trial (dry run): {seen.trial.message}", *state(seen, WEBHOOK)),
            next_step=f"kubectl -n {names.NAMESPACE} rollout restart deployment/{SERVICE}: it makes a certificate that is registered again"
            if tls
            else f"see that the webhook runs ({_WEBHOOK_PODS}), and that a NetworkPolicy lets the apiserver to its port 9443 (networkPolicy.webhookFrom)",
        )
    elif seen.trial.answered is None and not seen.gap(ENDPOINT_SLICES) and _in_cluster(seen):
        ours = [
            each
            for each in seen.items(ENDPOINT_SLICES)
            if values.namespace(each) == names.NAMESPACE
            and values.labels_of(each).get("kubernetes.io/service-name") == SERVICE
        ]
        ready = any(
            values.value(endpoint, "conditions", "ready") is not False
            for each in ours
            for endpoint in values.objects(each, "endpoints")
        )
        if not ready:
            yield Finding(
                code="WebhookUnreachable",
                stops=Stops.EVERYTHING,
                what=f"the Service {names.NAMESPACE}/{SERVICE} has no address that is ready: pods for GPUs are refused",
                evidence=state(seen, WEBHOOK),
                next_step=_WEBHOOK_PODS,
            )


def _in_cluster(seen: Seen) -> bool:
    """Whether the webhook is called by its Service; it may be registered by a URL, too."""
    return any(values.value(config, "service", "name") == SERVICE for config in _client_configs(seen))


def _client_configs(seen: Seen) -> Iterator[Raw]:
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for webhook in values.objects(seen.one(resource, CONFIGURATION), "webhooks"):
            yield values.mapping(webhook, "clientConfig")


def certificate(seen: Seen) -> Iterator[Finding]:
    """Judges the authorities that the apiserver is told to trust. One that is valid now is enough; without any it takes the system's."""
    bundles = {found for config in _client_configs(seen) if isinstance(found := config.get("caBundle"), str) and found}
    problems = sorted({problem for bundle in bundles if (problem := _problem(bundle, seen.now)) is not None})
    for stops, told in problems[:1]:
        yield Finding(
            code="WebhookCertificate",
            stops=stops,
            what=f"the webhook's certificate authority {told}"
            + (": pods for GPUs are refused" if stops is Stops.EVERYTHING else ""),
            next_step=f"kubectl -n {names.NAMESPACE} rollout restart deployment/{SERVICE}; with cert-manager: kubectl -n {names.NAMESPACE} get certificate",
        )


def _problem(bundle: str, now: float) -> tuple[Stops, str] | None:
    from cryptography import x509  # a tenth of a second

    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(bundle, validate=True))
    except (ValueError, binascii.Error):
        return Stops.EVERYTHING, "cannot be read (caBundle of the webhook configuration)"
    begins = min(each.not_valid_before_utc.timestamp() for each in found)
    ends = max(each.not_valid_after_utc.timestamp() for each in found)
    if ends <= now:
        return Stops.EVERYTHING, f"is not valid any more, since {timestamps.seconds(ends)}"
    if begins > now:
        return (
            Stops.EVERYTHING,
            f"is not valid before {timestamps.seconds(begins)}: the clock of the webhook's node is ahead",
        )
    if ends - now < SOON_S:
        return Stops.NOTHING, f"ends at {timestamps.seconds(ends)}"
    return None


def classes(seen: Seen) -> Iterator[Finding]:
    if seen.gap(DEVICE_CLASSES) or not seen.listed(DEVICE_CLASSES).served:
        return
    there = {values.name(each) for each in seen.items(DEVICE_CLASSES)}
    missing = [driver for driver in seen.drivers if not there & seen.managed_classes and driver not in there]
    if missing:
        yield Finding(
            code="NoDeviceClass",
            stops=Stops.EVERYTHING,
            what=f"no DeviceClass selects devices of {' or '.join(missing)}: claims cannot ask for them",
            evidence=(f"DeviceClasses that exist: {values.some(there) or 'none'}",),
            next_step="kubectl apply --server-side --force-conflicts -f manifests/base/deviceclasses.yaml",
        )


def fence(seen: Seen) -> Iterator[Finding]:
    """Looks for the policy without which kube-scheduler allocates our devices to any pod that names their class, as it does with every other driver's."""
    if seen.gap(VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS):
        return
    policy = seen.one(VALIDATING_POLICIES, FENCE)
    bound = [
        each
        for each in seen.items(VALIDATING_POLICY_BINDINGS)
        if values.text(each, "spec", "policyName") == FENCE
        and "Deny" in values.sequence(each, "spec", "validationActions")
    ]
    open_to = [driver for driver in seen.drivers if policy is not None and not _names(policy, driver)]
    if policy is None:
        told = f"there is no ValidatingAdmissionPolicy {FENCE}"
    elif not bound:
        told = f"ValidatingAdmissionPolicy {FENCE} has no binding that denies"
    elif open_to:
        told = f"ValidatingAdmissionPolicy {FENCE} does not name the driver {', '.join(open_to)}"
    else:
        return
    yield Finding(
        code="FenceOpen",
        stops=Stops.SOME,
        what="the allocation fence is open: kube-scheduler, or any other allocator, can take Fairlead's devices out of turn",
        evidence=(told,),
        next_step="kubectl apply --server-side --force-conflicts -f manifests/base/allocation-fence.yaml; with the chart policies.allocationFence=true, and managedDrivers as the controller has them",
    )


def _names(policy: Raw, driver: str) -> bool:
    return any(
        f"'{driver}'" in text
        for each in values.objects(policy, "spec", "validations")
        if isinstance(text := each.get("expression"), str)
    )


def foreign(seen: Seen) -> Iterator[Finding]:
    """Who wrote an allocation is in the claim's managed fields: kube-scheduler signs as itself, our controller as fairlead-…."""
    by: dict[str, list[str]] = {}
    for key, claim in seen.managed_claims.items():
        if any(each.get("driver") in seen.drivers for each in results_of(claim)):
            for manager in _allocators(claim):
                if not manager.startswith("fairlead"):
                    by.setdefault(manager, []).append("/".join(key))
    if by:
        yield Finding(
            code="ForeignAllocator",
            stops=Stops.SOME,
            what=f"another allocator takes Fairlead's devices: {', '.join(sorted(by))}",
            evidence=tuple(
                itertools.islice(
                    (f"{who} allocated claim {values.some(claims)}" for who, claims in sorted(by.items())), 5
                )
            ),
            next_step="delete the pods of these claims, so that they are made again with their gate; see that the allocation fence is installed",
        )


def _allocators(claim: Raw) -> set[str]:
    return {
        values.text(each, "manager")
        for each in values.objects(claim, "metadata", "managedFields")
        if _owns(each, "f:status", "f:allocation")
    } - {""}


def _owns(entry: Raw, *path: str) -> bool:
    found: Any = values.value(entry, "fieldsV1", *path)
    return found is not None


def mixed_drivers(seen: Seen) -> Iterator[Finding]:
    """Claims without an allocation, and templates, for devices of managed and of other drivers: written before the webhook refused them, or
    while a driver was managed that is managed no longer. What is allocated runs, and is passed over.
    """
    if seen.gap(DEVICE_CLASSES):
        return
    classes = {values.name(each): found for each in seen.items(DEVICE_CLASSES) if (found := _read(each, DeviceClass))}
    specs = [(each, values.value(each, "spec", "spec")) for each in seen.items(RESOURCE_CLAIM_TEMPLATES)]
    specs += [(each, each.get("spec")) for each in seen.items(RESOURCE_CLAIMS) if not results_of(each)]
    faults: dict[str, list[str]] = {}
    for each, written in specs:
        spec = _read(written, ResourceClaimSpec)
        if spec is None or (fault := _others_fault(spec, classes, seen)) is None:
            continue
        faults.setdefault(fault, []).append(values.key(each))
    if faults:
        yield Finding(
            code="MixedDrivers",
            stops=Stops.SOME,
            what="claims ask for devices of drivers that are managed and of others: Fairlead does not allocate them, and their gangs wait",
            evidence=tuple(
                f"{values.clean(values.some(found))}: {values.clean(fault)}"
                for fault, found in sorted(faults.items())[:5]
            ),
            next_step="add the driver to managedDrivers of the chart, and these are taken over as they are; or ask for its devices in a claim of their own, and delete the pods that wait",
        )


def _others_fault(spec: ResourceClaimSpec, classes: dict[str, DeviceClass], seen: Seen) -> str | None:
    """None also where the selectors are too much to be compiled: the webhook refuses such a claim, and the gang's message says so."""
    if selectors_fault(spec, classes, (*seen.drivers, *seen.shared_drivers)) is not None:
        return None
    try:
        return others_fault(spec, classes, seen.drivers, seen.shared_drivers)
    except AllowanceError:
        return None


def shared_drivers(seen: Seen) -> Iterator[Finding]:
    """Claims with devices of a driver of `sharedClaimDrivers` and none that is managed: another allocated them, who knows of ours too late.

    A device of such a driver that two claims hold, none of which shares it, was given out twice.
    """
    shared = set(seen.shared_drivers) - set(seen.drivers)
    alone: dict[str, list[str]] = {}
    holders: dict[str, list[str]] = {}
    for claim in seen.items(RESOURCE_CLAIMS) if shared else ():
        found = results_of(claim)
        theirs = [
            each for each in found if values.text(each, "driver") in shared and each.get("adminAccess") is not True
        ]
        if theirs and not any(each.get("driver") in seen.drivers for each in found):
            for driver in sorted({values.text(each, "driver") for each in theirs}):
                alone.setdefault(driver, []).append(values.key(claim))
        for each in theirs:
            if not each.get("shareID"):
                device = "/".join(values.text(each, name) for name in ("driver", "pool", "device"))
                holders.setdefault(device, []).append(values.key(claim))
    twice = [(device, claims) for device, claims in sorted(holders.items()) if len(claims) > 1]
    if not alone and not twice:
        return
    told = [f"{values.clean(device)} is in {values.clean(values.some(claims))}" for device, claims in twice]
    told += [
        f"allocated for {driver} alone: {values.clean(values.some(claims))}" for driver, claims in sorted(alone.items())
    ]
    drivers = sorted({*alone, *(device.partition("/")[0] for device, _ in twice)})
    yield Finding(
        code="SharedDriverAlone",
        stops=Stops.SOME,
        what=f"two programs give out devices of {' and '.join(drivers)} (sharedClaimDrivers): "
        + ("some are in two claims" if twice else "one may get into two claims"),
        evidence=tuple(told[:5]),
        next_step="move the driver from sharedClaimDrivers to managedDrivers of the chart, and Fairlead allocates for all of them"
        + ("; of each pair of claims, delete the pods of one" if twice else ""),
    )


def _read(written: object, kind: type[T]) -> T | None:
    try:
        return nulls.convert(written, kind)
    except msgspec.ValidationError:
        return None
