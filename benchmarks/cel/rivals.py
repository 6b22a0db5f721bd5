"""The other CEL libraries on the same selectors: cel-python, the Rust one, Google's C++ one.

Each gets the device in the form it likes best, converted beforehand, and Kubernetes' functions as Python ones, for none has
them; where a library cannot hold a quantity or version as a value, it gets the text. A library that is missing, or cannot run a
selector, gives no figure. Not a check of their answers: tests/cel/test_differential.py is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.kube.quantity import Quantity
from fairlead.kube.semver import Version

Evaluate = Callable[[Any], Any]
BUDGET_S = 1.0


def rivals(raw: Sequence[bytes], selectors: Mapping[str, str]) -> Iterator[tuple[str, str, float]]:
    """(engine, selector, seconds a device)."""
    devices = [_plain(msgspec.json.decode(text)) for text in raw]
    for engine, make in (("cel-python", _cel_python), ("rust", _rust), ("cpp", _cpp)):
        for name, text in selectors.items():
            with contextlib.suppress(Exception):  # whatever a foreign library raises: no figure
                convert, evaluate = make(text)
                yield engine, name, _per_device([convert(device) for device in devices], evaluate)


def _per_device(devices: Sequence[Any], evaluate: Evaluate) -> float:
    evaluate(devices[0])
    best, ended = float("inf"), time.process_time() + BUDGET_S
    while time.process_time() < ended:
        began = time.process_time()
        done = 0
        for device in devices:
            evaluate(device)
            done += 1
            if time.process_time() > ended:
                break
        best = min(best, (time.process_time() - began) / done)
    return best


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    driver = "gpu.example.com"
    attributes: dict[str, dict[str, Any]] = {}
    for name, held in raw["attributes"].items():
        domain, _, plain = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[plain] = next(iter(held.values()))
    capacity = {driver: {name: held["value"] for name, held in raw["capacity"].items()}}
    return {"driver": driver, "attributes": attributes, "capacity": capacity}


def _compare_quantities(left: str, right: str) -> int:
    return Quantity.parse(str(left)).compare(Quantity.parse(str(right)))


def _is_greater(left: str, right: str) -> bool:
    return Version.parse(str(left)) > Version.parse(str(right))


def _cel_python(text: str) -> tuple[Callable[[Any], Any], Evaluate]:
    import celpy
    from celpy import celtypes
    from celpy.adapter import json_to_cel

    environment = celpy.Environment()
    functions: Any = {
        "lowerAscii": lambda value: celtypes.StringType(str(value).lower()),
        "quantity": lambda value: value,
        "semver": lambda value: value,
        "compareTo": lambda left, right: celtypes.IntType(_compare_quantities(left, right)),
        "isGreaterThan": lambda left, right: celtypes.BoolType(_is_greater(left, right)),
    }
    program = environment.program(environment.compile(text), functions=functions)
    return lambda device: {"device": json_to_cel(device)}, program.evaluate


def _rust(text: str) -> tuple[Callable[[Any], Any], Evaluate]:
    import cel

    program = cel.compile(text)

    def convert(device: Any) -> Any:
        context = cel.Context()
        context.add_variable("device", device)
        context.add_function("lowerAscii", str.lower)
        context.add_function("quantity", str)
        context.add_function("semver", str)
        context.add_function("compareTo", _compare_quantities)
        context.add_function("isGreaterThan", _is_greater)
        return context

    return convert, program.execute


def _cpp(text: str) -> tuple[Callable[[Any], Any], Evaluate]:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    kinds = cel.Type
    declared = [
        cel.FunctionDecl(name, [cel.Overload(f"{name}_1", result, parameters, member, implementation)])
        for name, result, parameters, member, implementation in (
            ("quantity", kinds.STRING, [kinds.STRING], False, str),
            ("semver", kinds.STRING, [kinds.STRING], False, str),
            ("compareTo", kinds.INT, [kinds.DYN, kinds.DYN], True, _compare_quantities),
            ("isGreaterThan", kinds.BOOL, [kinds.DYN, kinds.DYN], True, _is_greater),
        )
    ]
    environment = cel.NewEnv(variables={"device": kinds.DYN}, extensions=[ext_strings.ExtStrings()], functions=declared)
    program = environment.compile(text)
    return lambda device: environment.Activation({"device": device}), lambda activation: program.eval(
        activation
    ).value()
