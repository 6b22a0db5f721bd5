"""A bill as FOCUS 1.2, the FinOps Foundation's format for cost and usage: CSV, one row per claim, device, bucket, day and price.

Source: FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec v1.2, specification/columns and specification/attributes. All mandatory columns are
there, the conditional ones that apply, and own columns `x_…`. How what Fairlead knows maps to FOCUS:

    SubAccount: queue. Resource: device. Sku: flavor. CapacityReservation: the claim, Unused where its device was idle.
    Tags: the labels in the ledger. Billing period: the calendar month (UTC). A charge period ends with the day, or where a price changes.

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
from fairlead.history.cost.bill import Asked, check_label, conserve, label_names
from fairlead.history.cost.usage import Priced, hours, priced
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
    per_hour, currency = each.per_hour or Fraction(0), each.currency or NO_CURRENCY
    before = sums.get(currency, Fraction(0))
    sums[currency] = before + per_hour * quantity
    cost = _decimal(Fraction(rounded(sums[currency], MONEY_PLACES)) - Fraction(rounded(before, MONEY_PLACES)))
    to = "none" if not held or not charged else "queue" if of.bucket == "idle" and asked.idle == "queue" else "holder"
    claim = f"{keys['namespace']}/{keys['claim']}" if held else ""
    queue = keys["queue"] if to != "none" else ""
    month = month_of(each.part.since_us)
    sku, price = measure.flavor or NO_FLAVOR, _decimal(per_hour, 18)
    tags = {name.removeprefix(LABEL): keys[name] for name in labels if keys[name]}
    found = {
        "BilledCost": cost,
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingCurrency": currency,
        "BillingPeriodEnd": shown(month.until_us),
        "BillingPeriodStart": shown(month.since_us),
        "CapacityReservationId": claim,
        "CapacityReservationStatus": "" if not held else "Unused" if of.bucket == "idle" or not charged else "Used",
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": _description(of, claim, keys["unit"], charged),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": shown(each.part.until_us),
        "ChargePeriodStart": shown(each.part.since_us),
        "ConsumedQuantity": _decimal(hours(time_us * measure.share_ppm)),
        "ConsumedUnit": "GPU-Hours",
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "InvoiceIssuerName": account,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCategory": "Dynamic" if measure.capacity_type == "spot" else "Standard",
        "PricingQuantity": _decimal(quantity),
        "PricingUnit": units.get(measure.flavor, "Unit-Hours"),
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceId": keys["unit"].rpartition("/")[0] + "/" + keys["device"] if keys["device"] else keys["unit"],
        "ResourceName": "",
        "ResourceType": "GPU",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": sku,
        "SkuMeter": "Device time",
        "SkuPriceId": f"{sku}/{measure.capacity_type or 'any'}/{price if each.per_hour is not None else 'unpriced'}",
        "SubAccountId": queue,
        "SubAccountName": queue,
        "Tags": json.dumps(tags, ensure_ascii=False) if tags else "",
        "x_Bucket": of.bucket,
        "x_ChargedTo": to,
        "x_Namespace": keys["namespace"],
        "x_Gang": keys["gang"],
        "x_Claim": keys["claim"],
        "x_User": keys["user"],
        "x_Node": keys["node"],
        "x_Unit": keys["unit"],
        "x_CapacityType": measure.capacity_type or "",
        "x_Lost": "true" if of.lost else "false",
        "x_Unpriced": "true" if each.per_hour is None else "false",
    }
    return {column: found[column] for column in COLUMNS}


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
