"""`fairlead devices | record | fault | load`: a GPU node's devices as a driver on it would publish them, as a profile, with faults, and with load.

Needs no cluster: a backend (NVML or a profile) is opened here, or a file is written that the driver of simulated hardware reads.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import yaml

from fairlead.api import names
from fairlead.cli.options import Output
from fairlead.cli.printer import console, say
from fairlead.driver.backend import device_names, factory, xids
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.profiles import recording
from fairlead.driver.backend.profiles.loading import ProfileError
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.types import THROTTLE_REASONS, Inventory
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import PoolSlices
from fairlead.kube.flags import DynamicMig
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import Device

HELD = "held"
BackendName = Annotated[str, typer.Option(help="nvml, or simulated:PROFILE.")]
PluginsDir = Annotated[Path, typer.Option(help="The --plugins-dir of the driver on simulated hardware.")]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Show the devices that a driver on this node would publish."""

    backend: BackendName = "nvml"
    dynamic_mig: DynamicMig = False
    output: Output = "table"

    def run(self) -> int:
        found = _inventory(self.backend)
        if found is None:
            return 1
        partitionable = frozenset(gpu.uuid for gpu in found.gpus if gpu.mig_profiles and not gpu.mig_devices)
        built = slices.build(found, slices.Facts(partitionable=partitionable if self.dynamic_mig else frozenset()))
        documents = [msgspec.to_builtins(device) for device in built.devices]
        if self.output == "table":
            _table(built)
        elif self.output == "json":
            say(json.dumps(documents, indent=2))
        else:  # without tuples, which YAML would tag
            say(yaml.safe_dump(json.loads(json.dumps(documents)), sort_keys=False), end="")
        for warning in (*found.warnings, *built.warnings):
            say(f"warning: {warning}", file=sys.stderr)
        return 0


@dataclass(frozen=True, kw_only=True)
class Record:
    """Write this node as a profile, to simulate it elsewhere; or, with --anonymise IN OUT, take the names out of recorded decisions."""

    paths: Annotated[
        tuple[Path, ...],
        typer.Argument(
            metavar="[FILE]",
            help="File to write. Default: print it. With --anonymise IN OUT: what to read, where to write.",
        ),
    ] = ()
    backend: BackendName = "nvml"
    uuids: Annotated[bool, typer.Option("--uuids", help="Keep the GPUs' UUIDs.")] = False
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            help="Instead: copy a recording of decisions, or a snapshot, without names of objects and values of labels.",
        ),
    ] = False
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="With --anonymise: a secret; equal ones give equal pseudonyms. Default: a random one.", exists=True
        ),
    ] = None

    def run(self) -> int:
        if self.anonymise:
            from fairlead.cli.snapshot import anonymous

            if len(self.paths) != 2:
                raise typer.BadParameter(
                    "name a recording (a directory, or a segment) or a snapshot, and where to write: --anonymise IN OUT",
                    param_hint="IN OUT",
                )
            return anonymous(*self.paths, self.key_file)
        if len(self.paths) > 1:
            raise typer.BadParameter(
                f"{self.paths[1]}: name one file to write the profile to; two are for --anonymise IN OUT",
                param_hint="FILE",
            )
        if self.paths and self.paths[0].exists():
            raise typer.BadParameter(
                f"{self.paths[0]}: is there already; name a new file for the profile, or --anonymise IN OUT to take names out of "
                "that one",
                param_hint="FILE",
            )
        found = _inventory(self.backend)
        if found is None:
            return 1
        text = recording.to_yaml(recording.record(found, description="recorded from a live node", uuids=self.uuids))
        if not self.paths:
            say(text, end="")
            return 0
        (path,) = self.paths
        path.write_text(text, encoding="utf-8")
        say(f"{path}: {len(found.gpus)} GPUs; simulate it with --backend simulated:{path}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Break a simulated GPU, or make it well again."""

    device: Annotated[str, typer.Argument(help="A whole GPU, such as gpu-3; with --mend also `all`.")]
    plugins_dir: PluginsDir
    xid: Annotated[int | None, typer.Option(help="Report this Xid.")] = None
    lost: Annotated[bool, typer.Option("--lost", help="Let it fall off the bus.")] = False
    throttle: Annotated[
        str | None, typer.Option(metavar="REASON", help="Hold its clocks down, for thermal_hw, say.")
    ] = None
    ecc: Annotated[
        str | None, typer.Option(metavar="KIND", help="Count an ECC error more: corrected or uncorrected.")
    ] = None
    reset_fails: Annotated[bool, typer.Option("--reset-fails", help="Let its resets fail.")] = False
    mend: Annotated[bool, typer.Option("--mend", help="Make it well again.")] = False

    def run(self) -> int:
        device, throttle, ecc = self.device, self.throttle, self.ecc
        match = re.fullmatch(r"gpu-(\d+)", device)
        if match is None and not (self.mend and device == "all"):
            return _wrong(f"device {device!r}: name a whole GPU, such as gpu-3 (or all, with --mend)")
        chosen = (self.xid is not None, self.lost, throttle is not None, ecc is not None, self.reset_fails, self.mend)
        if chosen.count(True) != 1:
            return _wrong(
                "say what shall happen: one of --xid CODE, --lost, --throttle REASON, --ecc KIND, --reset-fails, --mend"
            )
        if throttle is not None and throttle not in THROTTLE_REASONS:
            return _wrong(f"--throttle {throttle!r}: unknown; write one of {', '.join(THROTTLE_REASONS)}")
        if ecc is not None and ecc not in fault_file.ECC_KINDS:
            return _wrong(f"--ecc {ecc!r}: unknown; write one of {', '.join(fault_file.ECC_KINDS)}")
        path = _fault_file(self.plugins_dir)
        if path is None:
            return 1
        minor = int(match[1]) if match else None
        if self.mend:
            fault_file.clear(path, minor)
            say(f"{device} is well again")
        elif minor is not None:
            fault_file.inject(
                path, minor, xid=self.xid, lost=self.lost, throttle=throttle, ecc=ecc, reset_fails=self.reset_fails
            )
            say(f"{device} {self._happened()}")
        return 0

    def _happened(self) -> str:
        if self.reset_fails:
            return "can no longer be reset"
        if self.xid is not None:
            return f"reports {xids.describe(self.xid)}: {xids.classify(self.xid)}"
        if self.throttle is not None:
            return f"has its clocks held down: {self.throttle}"
        return "has fallen off the bus" if self.ecc is None else f"counts one more ECC error: {self.ecc}"


@dataclass(frozen=True, kw_only=True)
class Load:
    """Put a load on a simulated GPU, or with `held` on all that claims hold; without options it becomes idle."""

    device: Annotated[str, typer.Argument(help="A GPU such as gpu-3, a MIG device by its full name, or `held`.")]
    plugins_dir: PluginsDir
    utilization: Annotated[float, typer.Option(min=0, max=100, metavar="PERCENT", help="How busy it is.")] = 0.0
    memory: Annotated[str, typer.Option(metavar="QUANTITY", help="How much memory is in use, as 20Gi.")] = "0"
    nvlink: Annotated[
        str | None, typer.Option(metavar="QUANTITY", help="Bytes a second over NVLink; by default as it is busy.")
    ] = None

    def run(self) -> int:
        device, utilization = self.device, self.utilization
        if device != HELD and device_names.parse(device) is None:
            return _wrong(
                f"device {device!r}: name a GPU, such as gpu-3, a MIG device as it is published, or {HELD}: every device that "
                "a claim holds"
            )
        sizes: dict[str, int | None] = {}
        for option, text in {"--memory": self.memory, "--nvlink": self.nvlink}.items():
            try:
                sizes[option] = None if text is None else int(Quantity.of(text))
            except QuantityError as error:
                return _wrong(f"{option}: {error}; write a size such as 20Gi")
        memory_bytes, nvlink_bytes = sizes["--memory"] or 0, sizes["--nvlink"]
        if not 0 <= memory_bytes < 2**63 or not 0 <= utilization <= 100 or not 0 <= (nvlink_bytes or 0) <= 10**15:
            return _wrong(
                f"{device}: {utilization:g} %, {self.memory} of memory and {self.nvlink or 0} over NVLink are no load; write 0 to "
                "100, and sizes such as 20Gi"
            )
        path = _fault_file(self.plugins_dir)
        if path is None:
            return 1
        wanted = fault_file.Load(
            utilization_percent=utilization, memory_used_bytes=memory_bytes, nvlink_bytes_per_second=nvlink_bytes
        )
        if device == HELD:
            fault_file.load_held(path, wanted)
            say(
                f"every device is {utilization:g} % busy while a claim holds it, with {self.memory} of its memory in use"
            )
        else:
            fault_file.load(path, device, wanted)
            say(f"{device} is {utilization:g} % busy, with {self.memory} of its memory in use")
        return 0


def _wrong(text: str) -> int:
    say(text, file=sys.stderr)
    return 2


def _fault_file(plugins_dir: Path) -> Path | None:
    """What the driver of simulated hardware reads; None, with a message, where there is none."""
    data = plugins_dir / names.DRIVER
    if data.is_dir():
        return data / fault_file.NAME
    say(f"{data}: not there; --plugins-dir is not that of a driver on simulated hardware", file=sys.stderr)
    return None


def _inventory(backend: str) -> Inventory | None:
    made: Backend | None = None
    try:
        made = factory.open_backend(backend, node=socket.gethostname(), data=None)
        return made.inventory()
    except (BackendError, ProfileError, factory.BackendSpecError) as error:
        say(error, file=sys.stderr)
        return None
    finally:
        if made is not None:
            made.close()


def _table(built: PoolSlices) -> None:
    from rich.table import Table

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
    console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def _nvlink(device: Device) -> str:
    domain = _value(device, "nvlinkDomain")
    return "-" if domain == "-" else f"island {domain}, {_value(device, 'nvlinkLinks')} links"


def _value(device: Device, name: str) -> str:
    attribute = device.attributes.get(name)
    return "-" if attribute is None or attribute.value is None else str(attribute.value)
