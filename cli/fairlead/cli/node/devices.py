"""`fairlead devices`, `record`, `fault`, `load`: what this node would publish, as a profile, with faults, and with load.

Needs no cluster. Each function prints and returns the exit code.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import msgspec
import yaml
from rich.table import Table

from fairlead.api import names
from fairlead.cli.console import console as console_of
from fairlead.cli.node.commands import Fault, Load
from fairlead.cli.printer import say
from fairlead.driver.backend import device_names, factory, xids
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.profiles import recording
from fairlead.driver.backend.profiles.loading import ProfileError
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.types import THROTTLE_REASONS, Inventory
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import PoolSlices
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import Device

HELD = "held"


def devices(backend: str, *, node_name: str | None = None, dynamic_mig: bool = False, output: str = "table") -> int:
    """Print the devices that a driver with this backend would publish; output is table, yaml or json."""
    found = _inventory(backend, node_name)
    if found is None:
        return 1
    partitionable = frozenset(gpu.uuid for gpu in found.gpus if gpu.mig_profiles and not gpu.mig_devices)
    built = slices.build(found, slices.Facts(partitionable=partitionable if dynamic_mig else frozenset()))
    if output == "table":
        _table(built)
    else:
        documents = [msgspec.to_builtins(device) for device in built.devices]
        text = (
            json.dumps(documents, indent=2) if output == "json" else yaml.safe_dump(_plain(documents), sort_keys=False)
        )
        say(text.rstrip("\n"))
    for warning in (*found.warnings, *built.warnings):
        say(f"warning: {warning}", file=sys.stderr)
    return 0


def record(backend: str = "nvml", *, output: Path | None = None, uuids: bool = False) -> int:
    """Write this node as a profile for `--backend simulated:FILE`; to standard output when there is no file."""
    found = _inventory(backend, None)
    if found is None:
        return 1
    text = recording.to_yaml(recording.record(found, description="recorded from a live node", uuids=uuids))
    if output is None:
        say(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
        say(f"{output}: {len(found.gpus)} GPUs; simulate it with --backend simulated:{output}")
    return 0


def inject(asked: Fault) -> int:
    """`device` is gpu-<minor>, or `all` with `mend`."""
    device, throttle, ecc = asked.device, asked.throttle, asked.ecc
    match = re.fullmatch(r"gpu-(\d+)", device)
    if match is None and not (asked.mend and device == "all"):
        say(f"device {device!r}: name a whole GPU, such as gpu-3 (or all, with --mend)", file=sys.stderr)
        return 2
    chosen = (asked.xid is not None, asked.lost, throttle is not None, ecc is not None, asked.reset_fails, asked.mend)
    if chosen.count(True) != 1:
        say(
            "say what shall happen: one of --xid CODE, --lost, --throttle REASON, --ecc KIND, --reset-fails, --mend",
            file=sys.stderr,
        )
        return 2
    if throttle is not None and throttle not in THROTTLE_REASONS:
        say(f"--throttle {throttle!r}: unknown; write one of {', '.join(THROTTLE_REASONS)}", file=sys.stderr)
        return 2
    if ecc is not None and ecc not in fault_file.ECC_KINDS:
        say(f"--ecc {ecc!r}: unknown; write one of {', '.join(fault_file.ECC_KINDS)}", file=sys.stderr)
        return 2
    data = asked.plugins_dir / names.DRIVER
    if not data.is_dir():
        say(f"{data}: not there; --plugins-dir is not that of a driver on simulated hardware", file=sys.stderr)
        return 1
    path = data / fault_file.NAME
    minor = int(match[1]) if match else None
    if asked.mend:
        fault_file.clear(path, minor)
        say(f"{device} is well again")
    elif minor is not None:
        fault_file.inject(
            path,
            minor,
            xid=asked.xid,
            lost=asked.lost,
            throttle=throttle,
            ecc=ecc,
            reset_fails=asked.reset_fails,
        )
        say(f"{device} {_happened(asked.xid, throttle, ecc, reset_fails=asked.reset_fails)}")
    return 0


def _happened(xid: int | None, throttle: str | None, ecc: str | None, *, reset_fails: bool) -> str:
    if reset_fails:
        return "can no longer be reset"
    if xid is not None:
        return f"reports {xids.describe(xid)}: {xids.classify(xid)}"
    if throttle is not None:
        return f"has its clocks held down: {throttle}"
    return "has fallen off the bus" if ecc is None else f"counts one more ECC error: {ecc}"


def load(asked: Load) -> int:
    """Put a load on a simulated GPU or MIG device, until another is put there; on `held`, on every other one that a claim holds.

    `memory` is a quantity of bytes, `nvlink` one of bytes a second; without it NVLink follows the utilization.
    """
    device, utilization, memory, nvlink = asked.device, asked.utilization, asked.memory, asked.nvlink
    if device != HELD and device_names.parse(device) is None:
        say(
            f"device {device!r}: name a GPU, such as gpu-3, a MIG device as it is published, or {HELD}: every device that "
            "a claim holds",
            file=sys.stderr,
        )
        return 2
    sizes = {}
    for option, text in {"--memory": memory, "--nvlink": nvlink}.items():
        try:
            sizes[option] = None if text is None else int(Quantity.of(text))
        except QuantityError as error:
            say(f"{option}: {error}; write a size such as 20Gi", file=sys.stderr)
            return 2
    memory_bytes, nvlink_bytes = sizes["--memory"] or 0, sizes["--nvlink"]
    if not 0 <= memory_bytes < 2**63 or not 0 <= utilization <= 100 or not 0 <= (nvlink_bytes or 0) <= 10**15:
        say(
            f"{device}: {utilization:g} %, {memory} of memory and {nvlink or 0} over NVLink are no load; write 0 to 100, and "
            "sizes such as 20Gi",
            file=sys.stderr,
        )
        return 2
    data = asked.plugins_dir / names.DRIVER
    if not data.is_dir():
        say(f"{data}: not there; --plugins-dir is not that of a driver on simulated hardware", file=sys.stderr)
        return 1
    wanted = fault_file.Load(
        utilization_percent=utilization, memory_used_bytes=memory_bytes, nvlink_bytes_per_second=nvlink_bytes
    )
    if device == HELD:
        fault_file.load_held(data / fault_file.NAME, wanted)
        say(f"every device is {utilization:g} % busy while a claim holds it, with {memory} of its memory in use")
    else:
        fault_file.load(data / fault_file.NAME, device, wanted)
        say(f"{device} is {utilization:g} % busy, with {memory} of its memory in use")
    return 0


def _inventory(backend: str, node_name: str | None) -> Inventory | None:
    made: Backend | None = None
    try:
        made = factory.open_backend(backend, node=node_name or socket.gethostname(), data=None)
        return made.inventory()
    except (BackendError, ProfileError, factory.BackendSpecError) as error:
        say(error, file=sys.stderr)
        return None
    finally:
        if made is not None:
            made.close()


def _table(built: PoolSlices) -> None:
    table = Table("DEVICE", "PRODUCT", "PROFILE", "MEMORY", "NUMA", "PCIE ROOT", "PCI", "NVLINK", "UUID", box=None)
    for device in built.devices:
        table.add_row(
            device.name,
            _value(device, "productName"),
            _value(device, "profile"),
            str(device.capacity["memory"].value) if "memory" in device.capacity else "-",
            _value(device, names.NUMA_NODE),
            _value(device, names.PCIE_ROOT),
            _value(device, names.PCI_BUS_ID),
            _nvlink(device),
            _value(device, "uuid"),
        )
    console_of(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def _nvlink(device: Device) -> str:
    domain = _value(device, "nvlinkDomain")
    return "-" if domain == "-" else f"island {domain}, {_value(device, 'nvlinkLinks')} links"


def _value(device: Device, name: str) -> str:
    attribute = device.attributes.get(name)
    return "-" if attribute is None or attribute.value is None else str(attribute.value)


def _plain(value: object) -> object:
    """Lists for tuples, which YAML would tag."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
