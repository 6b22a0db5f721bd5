"""A bill as FOCUS 1.2, the FinOps Foundation's format for cost and usage: CSV, one row per claim, device, bucket, day and price.

Source: FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec v1.2, specification/columns and specification/attributes. All mandatory columns are
there, the conditional ones that apply, and own columns `x_…`. How what Fairlead knows maps to FOCUS:

    SubAccount: queue. Resource: device. Sku: flavor. CapacityReservation: the claim, Unused where its device was idle.
    Of what pods requested the resource is their gang, and there is no reservation. Tags: the labels in the ledger. Billing period: the calendar month (UTC). A charge period ends with the day, or where a price changes.

Costs have 12 places, cut so that a file's column sums to the exact cost, rounded once: a row has the rounded sum up to its end less that
up to its beginning. Time that no claim holds has no sub account. Unpriced use has cost 0 and x_Unpriced; without a currency that of its
flavor, ISO 4217's XXX (no currency).
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from fairlead.api.flavor import Flavor
from fairlead.api.resource_units import hours_unit
from fairlead.history.cost.bill import Asked, check_label, conserve, label_names
from fairlead.history.cost.usage import PodPriced, Priced, hours, priced, priced_pods
from fairlead.history.cost.window import LABEL, CostError, Known, Reader, days, month_of, shown
from fairlead.history.cost.written import MONEY_PLACES, plain
from fairlead.history.ledger.entries import HELD, Sum
from fairlead.history.prices import PriceBook, rounded
from fairlead.kube.timestamps import HOUR_US

PROVIDER: Final = "Fairlead"
NO_CURRENCY: Final = "XXX"
NO_FLAVOR: Final = "no-flavor"
OWN: Final = ("queue", "namespace", "gang", "claim", "user", "node", "unit", "device")
COLUMNS: Final = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "CapacityReservationId", "CapacityReservationStatus", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
    "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit",
    "ProviderName", "PublisherName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName",
    "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags",
    "x_Bucket", "x_ChargedTo", "x_Namespace", "x_Gang", "x_Claim", "x_User", "x_Node", "x_Unit", "x_CapacityType", "x_Lost", "x_Unpriced",
)  # fmt: skip
Row = dict[str, str]


def pricing_units(flavors: Iterable[Flavor]) -> dict[str, str]:
    """PricingUnit by flavor, in FOCUS' unit format."""
    found = dict[str, str]()
    for flavor in flavors:
        spec = flavor.spec
        of_capacity = "B-Hours" if spec.capacity_name == "memory" else "Unit-Hours"
        found[flavor.name] = {"Devices": "Device-Hours", "Share": "GPU-Hours"}.get(spec.measure, of_capacity)
    return found


def lines(
    reader: Reader, book: PriceBook, asked: Asked, known: Known, *, account: str, units: Mapping[str, str]
) -> Iterator[str]:
    """The file, a line at a time. Raises CostError for what FOCUS cannot say, ConservationError where the ledger is inconsistent."""
    found = rows(reader, book, asked, known, account, units)
    for row in itertools.chain([COLUMNS], (each.values() for each in found)):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(row)
        yield out.getvalue()


def rows(
    reader: Reader, book: PriceBook, asked: Asked, known: Known, account: str, units: Mapping[str, str]
) -> Iterator[Row]:
    """Each has all COLUMNS, in their order; "" is null. Raises, as `lines`, before the first one."""
    if asked.idle == "shared":
        raise CostError(
            "-o focus with --idle shared: a FOCUS charge is a quantity times a unit price, and a share of other claims' idle time is not: "
            "use --idle holder or --idle queue"
        )
    if not account:
        raise CostError("--billing-account: is empty: FOCUS needs a BillingAccountId, such as the cluster's name")
    conserve(reader, known.window)
    names = label_names(reader, known.window)
    for name, _ in asked.where:
        check_label(name, names)
    return _rows(reader, book, asked, known, account, units, tuple(LABEL + name for name in names))


def _rows(
    reader: Reader,
    book: PriceBook,
    asked: Asked,
    known: Known,
    account: str,
    units: Mapping[str, str],
    labels: tuple[str, ...],
) -> Iterator[Row]:
    groups = tuple(dict.fromkeys((*OWN, *labels, *(name for name, _ in asked.where))))
    sums = dict[str, Fraction]()
    for day in days(known.window):
        found = sorted(priced(reader, book, [day], groups), key=_order)
        for each in found:
            keys = dict(zip(groups, each.sum.keys, strict=True))
            if any(keys[name] != value for name, value in asked.where):
                continue
            for charged, time_us in _charges(each.sum, asked):
                yield _row(each, keys, charged, time_us, sums, account=account, units=units, labels=labels, asked=asked)
        for pods in priced_pods(reader, book, [day], groups):
            keys = dict(zip(groups, pods.sum.keys, strict=True))
            if all(keys[name] == value for name, value in asked.where):
                yield _pod_row(pods, keys, sums, account=account, labels=labels)


def _charges(of: Sum, asked: Asked) -> list[tuple[bool, int]]:
    """What is charged, and on the utilised basis what was held and not used: whether it is the first, and its time."""
    busy = of.time_us - of.sampled_us + of.busy_us
    if asked.basis == "allocated" or of.bucket not in HELD or busy == of.time_us:
        return [(True, of.time_us)]
    return [(True, busy), (False, of.time_us - busy)] if busy else [(False, of.time_us)]


def _row(
    each: Priced,
    keys: Mapping[str, str],
    charged: bool,
    time_us: int,
    sums: dict[str, Fraction],
    *,
    account: str,
    units: Mapping[str, str],
    labels: tuple[str, ...],
    asked: Asked,
) -> Row:
    of, measure = each.sum, each.sum.measure
    held, quantity = of.bucket in HELD, measure.amount * time_us / HOUR_US
    to = "none" if not held or not charged else "queue" if of.bucket == "idle" and asked.idle == "queue" else "holder"
    claim = f"{keys['namespace']}/{keys['claim']}" if held else ""
    found = _charge(each, keys, quantity, sums, account=account, labels=labels) | {
        "CapacityReservationId": claim,
        "CapacityReservationStatus": "" if not held else "Unused" if of.bucket == "idle" or not charged else "Used",
        "ChargeDescription": _description(of, claim, keys["unit"], charged),
        "ConsumedQuantity": _decimal(hours(time_us * measure.share_ppm)),
        "ConsumedUnit": "GPU-Hours",
        "PricingUnit": units.get(measure.flavor, "Unit-Hours"),
        "ResourceId": keys["unit"].rpartition("/")[0] + "/" + keys["device"] if keys["device"] else keys["unit"],
        "ResourceType": "GPU",
        "ServiceName": "GPU",
        "SkuMeter": "Device time",
        "x_Bucket": of.bucket,
        "x_ChargedTo": to,
        "x_Lost": "true" if of.lost else "false",
    }
    if to == "none":
        found |= {"SubAccountId": "", "SubAccountName": ""}
    return {column: found[column] for column in COLUMNS}


def _pod_row(
    each: PodPriced, keys: Mapping[str, str], sums: dict[str, Fraction], *, account: str, labels: tuple[str, ...]
) -> Row:
    hours_of = hours_unit(each.sum.resource)
    unit = _UNITS.get(hours_of, hours_of.replace("-hours", "-Hours"))
    gang = f"{keys['namespace']}/{keys['gang']}"
    found = _charge(each, keys, each.hours, sums, account=account, labels=labels) | {
        "CapacityReservationId": "",
        "CapacityReservationStatus": "",
        "ChargeDescription": f"{each.sum.resource} that pods of gang {gang} requested",
        "ConsumedQuantity": _decimal(each.hours),
        "ConsumedUnit": unit,
        "PricingUnit": unit,
        "ResourceId": gang,
        "ResourceType": "Gang",
        "ServiceName": "Pods",
        "SkuMeter": "Requests of pods",
        "x_Bucket": "used",
        "x_ChargedTo": "holder",
        "x_Lost": "false",
    }
    return {column: found[column] for column in COLUMNS}


_UNITS: Final = {"cpu-hours": "CPU-Hours", "pod-hours": "Pod-Hours"}


def _charge(
    each: Priced | PodPriced,
    keys: Mapping[str, str],
    quantity: Fraction,
    sums: dict[str, Fraction],
    *,
    account: str,
    labels: tuple[str, ...],
) -> Row:
    """What charges of devices and of pods have in common: the cost, when, of which price, and whose."""
    per_hour, currency = each.per_hour or Fraction(0), each.currency or NO_CURRENCY
    before = sums.get(currency, Fraction(0))
    sums[currency] = before + per_hour * quantity
    cost = _decimal(Fraction(rounded(sums[currency], MONEY_PLACES)) - Fraction(rounded(before, MONEY_PLACES)))
    month = month_of(each.part.since_us)
    flavor, capacity_type = each.sold
    sku, price = flavor or NO_FLAVOR, _decimal(per_hour, 18)
    tags = {name.removeprefix(LABEL): keys[name] for name in labels if keys[name]}
    return {
        "BilledCost": cost,
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingCurrency": currency,
        "BillingPeriodEnd": shown(month.until_us),
        "BillingPeriodStart": shown(month.since_us),
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": shown(each.part.until_us),
        "ChargePeriodStart": shown(each.part.since_us),
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "InvoiceIssuerName": account,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCategory": "Dynamic" if capacity_type == "spot" else "Standard",
        "PricingQuantity": _decimal(quantity),
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceName": "",
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{capacity_type or 'any'}/{price if each.per_hour is not None else 'unpriced'}",
        "SubAccountId": keys["queue"],
        "SubAccountName": keys["queue"],
        "Tags": json.dumps(tags, ensure_ascii=False) if tags else "",
        "x_Namespace": keys["namespace"],
        "x_Gang": keys["gang"],
        "x_Claim": keys["claim"],
        "x_User": keys["user"],
        "x_Node": keys["node"],
        "x_Unit": keys["unit"],
        "x_CapacityType": capacity_type or "",
        "x_Unpriced": "true" if each.per_hour is None else "false",
    }


def _decimal(amount: Fraction, places: int = MONEY_PLACES) -> str:
    """With a point in any case: readers that guess a column's type from its values take 168 for a whole number."""
    text = plain(amount, places)
    return text if "." in text else f"{text}.0"


def _description(of: Sum, claim: str, unit: str, charged: bool) -> str:
    if of.bucket not in HELD:
        return f"{unit}, held by no claim: {of.bucket}"
    return f"{unit}, held by claim {claim}: {of.bucket if charged else 'not utilised'}"


def _order(each: Priced) -> tuple[object, ...]:
    of = each.sum
    return (
        each.part.since_us, of.keys, of.bucket, of.lost, of.measure.flavor, of.measure.capacity_type or "", of.measure.share_ppm,
        of.measure.amount,
    )  # fmt: skip
