"""Worst-case costs are the numbers that Kubernetes' own test of device selectors states, and ours where it has none."""

import pytest

from fairlead.cel import BudgetError, compile_selector
from tests.support import cpu
from tests.support.cel import make_device

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
D = "dra.example.com"
NESTED = "int('1'.find('[0-9]*')) < 100"
for name in ("z5", "z4", "z3", "z2", "z", "y", "x"):
    NESTED = f"{TEN}.all({name}, {NESTED})"
ALL = " && ".join(
    [
        f'device.capacity["{D}"].quantity.isGreaterThan(quantity("1Ki"))', f'device.attributes["{D}"].bool', f'device.attributes["{D}"].int > 0',
        f'device.attributes["{D}"].string == "fish"', f'device.attributes["{D}"].version.isGreaterThan(semver("0.0.1"))',
        f'device.capacity["{D}"]["quantity"].isGreaterThan(quantity("1Ki"))', f'device.attributes["{D}"]["bool"]', f'device.attributes["{D}"]["int"] > 0',
        f'device.attributes["{D}"]["string"] == "fish"', f'device.attributes["{D}"]["version"].isGreaterThan(semver("0.0.1"))',
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("true", 0),
        ('device.attributes["no"].noSuchAttr.isGreaterThan(quantity("0"))', 6),
        ('device.attributes["no"]["noSuchAttr"].isGreaterThan(quantity("0"))', 6),
        ('"no" in device.attributes', 3),
        ('device.driver == ""', 2),
        (f'device.driver == "{D}"', 4),
        (f'device.attributes["{D}"].name', 4),
        (f'device.attributes["{D}"]["name"]', 4),
        (f'cel.bind(dra, device.attributes["{D}"], dra.name)', 15),
        (f'device.attributes["{D}"].name > 0', 5),
        (f'device.attributes["{D}"].name == "fish"', 5),
        (f'device.attributes["{D}"].name.exists(x, x > 0)', 5 + 6 * 64),
        (f'device.attributes["{D}"].name.exists(x, x == "fish")', 5 + 6 * 64),
        (f'device.attributes["{D}"].names.size() == 2', 6),
        (f'device.attributes["{D}"].names.all(x, x != "")', 5 + 4 * 64),
        (f'device.attributes["{D}"].names.all(x, x.isGreaterThan(semver("0.0.1")))', 5 + 6 * 64),
        (f'device.attributes["{D}"].name.includes("fish")', 4 + 48),
        (f'device.attributes["{D}"].name.includes(semver("1.0.0"))', 4 + 48 + 1),
        (f'1 in device.attributes["{D}"].names', 4 + 64),
        (f'device.attributes["{D}"].name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)', 7),
        (f'"name" in device.capacity["{D}"] && device.capacity["{D}"].name.isGreaterThan(quantity("1Ki"))', 10),
        (f'!("name" in device.capacity["{D}"]) || device.capacity["{D}"].name.isGreaterThan(quantity("1Ki"))', 11),
        (ALL, 52),
        (f'device.attributes["{D}"].a && device.attributes["{D}"].b && device.attributes["{D}"].c', 12),
        (f'device.attributes.exists_one(x, x == "{D}")', 164),
        (f'device.attributes["{D}"].exists_one(x, x == "services")', 133),
        (f'device.attributes["{D}"].services.split("example").size() >= 2', 19),
        (f'device.attributes["{D}"].services.matches("[^a]?sym")', 18),
        (f'device.capacity.exists_one(x, x == "{D}")', 164),
        (f'device.capacity["{D}"].exists_one(x, x == "memory")', 133),
        (NESTED, 85_555_551),
        ("device.allowMultipleAllocations == false", 3),
    ],
)
def test_the_estimate_is_upstream_s(text: str, cost: int) -> None:
    assert compile_selector(text).estimated_cost == cost


def test_what_upstream_calls_expensive_is_stopped() -> None:
    with cpu.at_most(5.0), pytest.raises(BudgetError, match="cost limit exceeded"):
        compile_selector(NESTED).matches(make_device())
