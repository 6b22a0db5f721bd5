"""What selectors cost: to compile, on one device, on a table of 100,000 devices of 32 models, and after a change.

Devices come out of JSON, as they do from the apiserver, so no two share a string. Times are of the process's CPU, the best of
several runs. The other CEL libraries (rivals.py) evaluate the same selectors on the same devices in the same run.
Bars: the seed selector (`full`) in DESIGN 8.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from benchmarks.cel.rivals import rivals
from benchmarks.measured import figure, timed
from fairlead.cel import DeviceTable, DeviceView, compile_selector
from fairlead.cel.devices.selector import stored_selector
from fairlead.kube.resource import Device

DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
SELECTORS = {
    "driver": f'device.driver == "{DRIVER}"',
    "two": f'{A}.type == "gpu" && {A}.index < 5',
    "full": (
        f'device.driver == "{DRIVER}" && {A}.productName.lowerAscii().matches("^.*h100.*$") && '
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    ),
    "semver": f'{A}.driverVersion.isGreaterThan(semver("550.0.0"))',
    "has": f'has({A}.profile) || {A}.productName in ["NVIDIA H100 80GB HBM3 0", "NVIDIA A100-SXM4-40GB 1"]',
}
ROWS = 100_000
MODELS = 32


def figures() -> list[dict[str, Any]]:
    """The table, as DESIGN 9 has it: figure, value, unit, bar."""
    raw = list(_devices(ROWS))
    measured = [*_compiling(), *_ingest(raw), *_single(raw[0])]
    for rows in (1_000, ROWS):
        measured += _tables(raw[:rows])
    return measured + [
        figure(f"cel/{name}/per-device/{engine}", value * 1e6, "us")
        for engine, name, value in rivals(raw[:500], SELECTORS)
    ]


def _devices(count: int) -> Iterator[bytes]:
    choose = random.Random(32)
    products = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA L40S", "Tesla T4")
    models = [(f"{products[number % 4]} {number}", f"{20 + number}Gi") for number in range(MODELS)]
    for index in range(count):
        product, memory = models[choose.randrange(MODELS)]
        attributes: dict[str, Any] = {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{index:032x}"},
            "productName": {"string": product},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "index": {"int": index % 8},
            "minor": {"int": index % 8},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.82.7"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "nvlinkDomain": {"int": 0},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{index % 256:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index % 16:02x}"},
            "resource.kubernetes.io/numaNode": {"int": index % 2},
        }
        capacity = {"memory": {"value": memory}, "multiprocessors": {"value": "132"}}
        yield json.dumps({"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity}).encode()


def _view(raw: bytes) -> DeviceView:
    return DeviceView.of(DRIVER, msgspec.json.decode(raw, type=Device))


def _compiling() -> list[dict[str, Any]]:
    return [
        figure(f"cel/{name}/compile", _best(lambda: stored_selector(text), runs=50) * 1e6, "us")  # noqa: B023
        for name, text in SELECTORS.items()
    ]


def _ingest(raw: list[bytes]) -> list[dict[str, Any]]:
    devices = [msgspec.json.decode(text, type=Device) for text in raw[:5_000]]
    taken = _best(lambda: [DeviceView.of(DRIVER, device) for device in devices], runs=5)
    return [figure("cel/view", taken / len(devices) * 1e6, "us/device")]


def _single(raw: bytes) -> list[dict[str, Any]]:
    view = _view(raw)
    measured = []
    for name, text in SELECTORS.items():
        matches = compile_selector(text).matches
        taken = _best(lambda: [matches(view) for _ in range(10_000)], runs=5) / 10_000  # noqa: B023
        measured.append(figure(f"cel/{name}/1", taken * 1e6, "us", 5.0 if name == "full" else None))
    return measured


def _tables(raw: list[bytes]) -> list[dict[str, Any]]:
    """A new selector on a table that knows none; the same again; and after one slice of 8 devices was replaced."""
    views = [_view(text) for text in raw]
    gc.collect()
    gc.freeze()
    measured = []
    large = len(raw) == ROWS
    for name, text in SELECTORS.items():
        selector = compile_selector(text)
        bar = name == "full" and large
        cold, again, change = [], [], []
        for _ in range(5):
            table = DeviceTable()
            for view in views:
                table.add(view)
            cold.append(timed(lambda: table.mask(selector))[0])  # noqa: B023
            again.append(timed(lambda: table.mask(selector))[0])  # noqa: B023
            for row in range(8):
                table.replace(row, views[(row * 7919 + 1) % len(views)])
            change.append(timed(lambda: table.mask(selector))[0])  # noqa: B023
        size = len(raw)
        measured += [
            figure(f"cel/{name}/{size}/cold", min(cold), "s", 0.05 if bar else None),
            figure(f"cel/{name}/{size}/per-device", min(cold) / size * 1e6, "us", 0.5 if bar else None),
            figure(f"cel/{name}/{size}/cached", min(again), "s"),
            figure(f"cel/{name}/{size}/one-slice-changed", min(change), "s", 0.001 if bar else None),
        ]
    gc.unfreeze()
    return measured


def _best(call: Callable[[], Any], *, runs: int) -> float:
    return min(timed(call)[0] for _ in range(runs))
