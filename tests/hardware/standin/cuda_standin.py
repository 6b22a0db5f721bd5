"""CUDA as a program sees it on the stand-in: devices by what CDI injected, memory and MPS limits, an illegal address.

Imports nothing of ours but state.py beside it: containers have another root.
"""

import glob
import os
import socket
import struct
import time

import state

from __main__ import CudaError  # of the program that found this in libcuda's place

NO_DEVICE, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 100, 2, 700
LAUNCH_S = 0.001


class Cuda:
    """As `gpu_program.Cuda`."""

    def __init__(self):
        minors = sorted(int(path[len("/dev/nvidia") :]) for path in glob.glob("/dev/nvidia[0-9]*"))
        named = {value for name, value in os.environ.items() if name.startswith("FAIRLEAD_DEVICE")}
        there = [f"GPU-{each}" for each in state.UUIDS]
        # In a container its device nodes decide; in a plain process what was injected.
        self._own = [there[minor] for minor in minors if minor < len(there)] or sorted(named)
        if not self._own:
            raise CudaError("cuInit", NO_DEVICE)
        self.count = len(self._own)
        self._pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        self._limit, self._percentage, self._given, self._written, self._failed = None, 100.0, 0, {}, False

    def uuids(self):
        return [each[len("GPU-") :] for each in self._own]

    def open(self):
        self._uuid = self._own[0][len("GPU-") :]
        self._use = state.Use(self._uuid)
        if self._pipe:
            self._percentage = float(self._ask("get_default_active_thread_percentage"))
            self._limit = int(self._ask(f"get_default_device_pinned_mem_limit GPU-{self._uuid}").rstrip("MG")) * 2**20

    def _ask(self, command):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{self._pipe}/control")
            with connection.makefile("rw") as lines:
                lines.write(f"{command}\n")
                lines.flush()
                return lines.readline().strip()

    def multiprocessors(self):
        return max(1, int(state.MULTIPROCESSORS * self._percentage / 100))

    def allocate(self, size):
        there = self._limit or state.TOTAL_BYTES - state.RESERVED_BYTES - state.used_bytes(self._uuid) + self._given
        if self._given + size > there:
            raise CudaError("cuMemAlloc_v2", OUT_OF_MEMORY)
        self._given += size
        self._use.set(self._given, False)
        return self._given

    def write(self, pointer, data):
        self._written[pointer] = data

    def read(self, pointer, size):
        return self._written[pointer][:size]

    def run(self, name, blocks, threads, *arguments):
        self._use.set(self._given, True)
        if name == "add":
            a, b, c, _ = arguments
            one, two = (struct.unpack(f"{len(self._written[each]) // 4}f", self._written[each]) for each in (a, b))
            self._written[c] = struct.pack(f"{len(one)}f", *(x + y for x, y in zip(one, two, strict=True)))
        elif name == "poke":
            self._failed = True
            state.report_xid(self._uuid, 31)
        else:
            time.sleep(LAUNCH_S * 100 / self._percentage)

    def wait(self):
        if self._failed:
            raise CudaError("cuCtxSynchronize", ILLEGAL_ADDRESS)
