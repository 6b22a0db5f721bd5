"""Every cache of the programs is listed here with what it can hold at most, when a tenant fills it with the longest keys it takes.

A cache that counts entries and not bytes holds what the largest entries make of it. A new `lru_cache` fails this test until its bound is known.
"""

import gc
import importlib
import pkgutil
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

import fairlead
from fairlead.cel import EvaluationError
from fairlead.cel.library import net, regex
from fairlead.cel.program_cache import ProgramCache
from fairlead.engine.types import values
from fairlead.kube import quantity, semver

BOUND_BYTES = 5 * 2**20

# Filled by tenants, through objects that they write: how to fill one.
FILLED: dict[str, Callable[[int], object]] = {
    "fairlead.cel.library.regex.compiled": lambda n: regex.compiled(f"{n}" + "(a|b){300}"),
    "fairlead.cel.library.regex._cached_search": lambda n: regex.matches("t" * 1_000_000, f"{n:06}" + "x" * 1000)
    or regex.matches(f"{n:08}" * 16, "x" * 128),
    "fairlead.cel.library.net._remembered_ip": lambda n: _quietly(net.parse_ip, f"::{n % 65536:x}:{n // 65536:x}"),
    "fairlead.cel.library.net._remembered_cidr": lambda n: _quietly(net.parse_cidr, f"::{n % 65536:x}:{n // 65536:x}/64"),
    "fairlead.kube.quantity._remembered": lambda n: (
        _quietly(quantity.parse, f"{n}" + "9" * 50),
        _quietly(quantity.parse, f"{n}" + "9" * 900),
    ),
    "fairlead.kube.semver._remembered": lambda n: (
        _quietly(semver.parse, f"1.1.{n}-" + "a" * 110),
        _quietly(semver.parse, f"1.1.{n}-" + "a" * 900),
    ),
    "fairlead.engine.types.values._remembered": lambda n: (
        _quietly(values.amount, f"{n}" + "9" * 50),
        _quietly(values.amount, f"{n}" + "9" * 900),
    ),
}  # fmt: skip

# Keyed by what tenants do not write, or by texts of a form that allows few or short ones.
OTHERS = {
    "fairlead.cel.device._layout": "names of attributes in ResourceSlices, which drivers write",
    "fairlead.cel.device._version_key": "versions in ResourceSlices",
    "fairlead.cel.device._quantity_key": "capacities in ResourceSlices",
    "fairlead.api.claim_sources._sources": "values of at most 1,024 characters",
    "fairlead.api.drivers.attributes_of": "1,024 names of drivers, of slices, flavors and settings",
    "fairlead.cel.kubernetes.environments": "releases of the table in fairlead.kube.releases",
    "fairlead.kube.listing._decoder": "types of this program",
    "fairlead.kube.nulls._drop_for": "types of this program",
    "fairlead.engine.types.values.text": "numbers that `amount` read, of at most 1,000 digits",
    "fairlead.engine.placement.value.leftover.leftover_prices": "64 lists of 1,001 numbers",
    "fairlead.engine.inventory.models._share": "profiles and products of devices",
    "fairlead.engine.inventory.models._names": "1,024 names of drivers, in ResourceSlices",
    "fairlead.engine.inventory.device.typed": "attributes of devices",
    "fairlead.controller.report.status_writer._fields": "types of this program",
    "fairlead.controller.gangs.claims.claims.legacy_template": "1,024 templates whose names have a given form",
    "fairlead.webhook.review.pod_claims.legacy_claim_spec": "1,024 specs whose names have a given form",
    "fairlead.webhook.serve.connection.parse_head": "64 heads of at most 16 KiB",
    "fairlead.webhook.policy.policies.compiled": "rules of TenancyPolicies, which administrators write",
    "fairlead.driver.backend.xids._table": "one table",
    "fairlead.api.recurrence.zones": "one set",
    "fairlead.history.code_version.code_version": "one text",
    "fairlead.history.cost.page._template": "one template of this program",
    "fairlead.history.ledger.store.spans._fraction": "amounts in the ledger, which the controller writes",
    "fairlead.driver.backend.profiles.loading._mig_table": "tables of this program; a name that is none is not kept",
}


def _quietly(call: Callable[[str], object], text: str) -> object:
    """None for what cannot be read."""
    try:
        return call(text)
    except (ValueError, EvaluationError):
        return None


def caches() -> Iterator[str]:
    """Every module-level function with a cache of functools in what runs in a cluster."""
    seen: set[int] = set()
    for found in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not found.name.startswith(
            tuple(
                f"fairlead.{part}"
                for part in ("api", "kube", "cel", "engine", "history", "driver", "webhook", "controller")
            )
        ):
            continue
        if found.name.endswith("__main__") or ".nvml" in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if hasattr(value, "cache_info") and id(value) not in seen and _home(value) == found.name:
                seen.add(id(value))
                yield f"{found.name}.{name}"


def _home(value: object) -> str:
    wrapped = getattr(value, "__wrapped__", value)
    return str(getattr(wrapped, "__module__", ""))


def test_every_cache_is_known() -> None:
    assert sorted(set(caches()) ^ (FILLED.keys() | OTHERS.keys())) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILLED)
def test_a_tenant_who_fills_a_cache_leaves_less_than_the_bound(name: str) -> None:
    module, _, function = name.rpartition(".")
    cache = getattr(importlib.import_module(module), function)
    cache.cache_clear()
    gc.collect()
    tracemalloc.start()
    for n in range(cache.cache_info().maxsize + 100):
        FILLED[name](n)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < BOUND_BYTES
    cache.cache_clear()


def test_an_owner_with_many_large_programs_loses_its_own_and_nobody_elses() -> None:
    cache = ProgramCache[int](bytes_max=100)
    for owner in ("red", "blue"):
        cache.put(f"{owner} small", 1, 10, owner)
    for number in range(20):
        cache.put(f"loud {number}", number, 30, "loud")
    assert [cache.get(f"{owner} small") for owner in ("red", "blue")] == [1, 1]
    assert [number for number in range(20) if cache.get(f"loud {number}") is not None] == [18, 19]
    assert cache.bytes == 80


def test_an_owner_makes_room_for_its_own_large_program() -> None:
    cache = ProgramCache[int](bytes_max=100)
    cache.put("red", 1, 50, "red")
    cache.put("loud", 2, 40, "loud")
    cache.put("loud and large", 3, 50, "loud")
    assert (cache.get("red"), cache.get("loud"), cache.get("loud and large")) == (1, None, 3)


def test_patterns_take_a_bounded_part_of_memory_that_python_does_not_see() -> None:
    """re2 keeps 128 patterns of its own; a pattern has MEMORY_MAX with all that its searches remember."""
    assert 128 * regex.MEMORY_MAX < BOUND_BYTES
