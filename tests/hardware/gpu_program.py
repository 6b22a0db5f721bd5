"""What runs in the pods of `make gpu`: uses a GPU through CUDA's driver API, and prints what it saw as one line of JSON.

    python3 gpu_program.py see | add | load SECONDS BYTES | allocate BYTES | command BYTES | spin SECONDS | fault | reduce

Python alone suffices: kernels are PTX, which the driver compiles. Imports nothing of ours, and runs with any Python 3.8 or newer,
whatever root file system it is in.
"""

import contextlib
import ctypes
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from typing import Any

PTX = b"""
.version 6.4
.target sm_60
.address_size 64

.visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
    .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u64 %d3, [pc]; ld.param.u32 %r5, [pn];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r5;
    @%p ret;
    mul.wide.u32 %d4, %r4, 4; add.u64 %d5, %d1, %d4; add.u64 %d6, %d2, %d4; add.u64 %d7, %d3, %d4;
    ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6]; add.f32 %f3, %f1, %f2; st.global.f32 [%d7], %f3;
    ret;
}

.visible .entry spin(.param .u64 pout, .param .u32 ploops)
{
    .reg .pred %p; .reg .f32 %f<5>; .reg .b32 %r<6>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [pout]; ld.param.u32 %r5, [ploops];
    mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F800001; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
    mov.u32 %r2, 0;
LOOP:
    fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f3, %f3, %f2, %f2; fma.rn.f32 %f4, %f4, %f2, %f2;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r5;
    @%p bra LOOP;
    add.f32 %f1, %f1, %f3; add.f32 %f1, %f1, %f4;
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; st.global.f32 [%d3], %f1;
    ret;
}

.visible .entry poke(.param .u64 pout)
{
    .reg .b32 %r<2>; .reg .b64 %d<2>;
    ld.param.u64 %d1, [pout]; mov.u32 %r1, 1; st.global.u32 [%d1], %r1;
    ret;
}
\0"""
CHUNK = 64 * 2**20
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class CudaError(Exception):
    def __init__(self, call, code):
        super().__init__(f"{call}: CUDA error {code}")
        self.code = code


class Cuda:
    """The first device. Raises CudaError, or OSError where there is no libcuda."""

    def __init__(self):
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value

    def _call(self, name, *arguments):
        code = getattr(self._lib, name)(*arguments)
        if code:
            raise CudaError(name, code)

    def uuids(self):
        found = []
        for index in range(self.count):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self._call("cuDeviceGet", ctypes.byref(device), index)
            self._call("cuDeviceGetUuid_v2", ctypes.byref(raw), device)
            text = bytes(raw).hex()
            found.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
        return found

    def open(self):
        self._device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), PTX)
        self._module = module

    def multiprocessors(self):
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), MULTIPROCESSORS, self._device)
        return value.value

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def write(self, pointer, data):
        self._call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))

    def read(self, pointer, size):
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(size))
        return data.raw

    def run(self, name, blocks, threads, *arguments):
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)

    def wait(self):
        self._call("cuCtxSynchronize")


def driver():
    """CUDA, or what plays it where there is no GPU."""
    if "GPU_STANDIN" not in os.environ:
        return Cuda()
    sys.path.insert(0, os.environ["GPU_STANDIN"])
    import cuda_standin

    return cuda_standin.Cuda()


def see():
    """Which devices a container sees, by the files in /dev and by CUDA."""
    nodes = sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*"))
    found: dict[str, Any] = {"nodes": nodes, "uuids": [], "error": None}
    try:
        cuda = driver()
        found["uuids"] = cuda.uuids()
    except (CudaError, OSError) as error:
        found["error"] = str(error)
    found["allocated"] = {name: value for name, value in os.environ.items() if name.startswith("FAIRLEAD_DEVICE")}
    return found


def add():
    """Whether a sum of two vectors is right, and on which device."""
    cuda = driver()
    cuda.open()
    count = 1 << 16
    one, two = (struct.pack(f"{count}f", *(step * at for at in range(count))) for step in (1, 2))
    a, b, c = (cuda.allocate(4 * count) for _ in range(3))
    cuda.write(a, one)
    cuda.write(b, two)
    cuda.run("add", count // 256, 256, a, b, c, ctypes.c_uint32(count))
    cuda.wait()
    found = struct.unpack(f"{count}f", cuda.read(c, 4 * count))
    right = all(value == 3 * at for at, value in enumerate(found))
    return {"uuids": cuda.uuids(), "right": right, "multiprocessors": cuda.multiprocessors()}


def load(seconds, size):
    """Keeps all multiprocessors busy, with so much memory in use."""
    cuda = driver()
    cuda.open()
    cuda.allocate(size)
    return _spin(cuda, seconds)


def spin(seconds):
    """How much a program gets done in that time, in launches of equal kernels, if it asks MPS for all multiprocessors."""
    os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "100"
    cuda = driver()
    cuda.open()
    return _spin(cuda, seconds)


def _spin(cuda, seconds):
    out = cuda.allocate(4096)
    launches, begun = 0, time.monotonic()
    while time.monotonic() < begun + seconds:
        for _ in range(8):
            cuda.run("spin", 1056, 1024, out, ctypes.c_uint32(100_000))
        cuda.wait()
        launches += 8
    return {"per_s": launches / (time.monotonic() - begun), "multiprocessors": cuda.multiprocessors()}


def allocate(size):
    """How much of `size` bytes the program gets before it is refused, if it asks MPS for a higher limit."""
    os.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=1000G"
    cuda = driver()
    cuda.open()
    given, error = 0, None
    while given < size:
        try:
            cuda.allocate(CHUNK)
        except CudaError as refused:
            error = str(refused)
            break
        given += CHUNK
    return {"given": given, "error": error}


def command(size):
    """How much it gets after it has told the MPS daemon to allow more; `control` False without NVIDIA's program for that."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return {"control": False}
    cuda = driver()
    cuda.open()  # starts the server
    servers = _said(control, "get_server_list")
    said = [_said(control, "set_default_device_pinned_mem_limit 0 1000G")]
    said += [_said(control, f"set_device_pinned_mem_limit {pid} 0 1000G") for pid in servers.split() if pid.isdigit()]
    done = subprocess.run([sys.executable, __file__, "allocate", str(size)], stdout=subprocess.PIPE, check=False)
    return {"control": True, "servers": servers, "said": said, **json.loads(done.stdout)}


def _said(control, line):
    done = subprocess.run([control], input=f"{line}\n".encode(), stdout=subprocess.PIPE, check=False, timeout=10)
    return done.stdout.decode(errors="replace").strip()


def fault():
    """Writes where no memory is; CUDA says 700 (illegal address), the kernel Xid 31."""
    cuda = driver()
    cuda.open()
    cuda.run("poke", 1, 1, ctypes.c_uint64(0xDEAD0000))
    try:
        cuda.wait()
    except CudaError as error:
        return {"error": str(error), "code": error.code}
    return {"error": None, "code": 0}


def reduce():
    """What NCCL says of its topology file when it sums over one rank; `torch` False where PyTorch is not there."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return {"torch": False}
    log = "/tmp/nccl.log"
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL", NCCL_DEBUG_FILE=log, NCCL_SOCKET_IFNAME="lo")
    dist.init_process_group("nccl", init_method="file:///tmp/nccl-ranks", rank=0, world_size=1)
    ones = torch.ones(1024, device="cuda")
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    with open(log) as file:
        lines = file.read().splitlines()
    said = [line.partition("NCCL ")[2] for line in lines if "NCCL_TOPO_FILE" in line or " WARN " in line]
    return {"torch": True, "version": torch.__version__, "sum": float(ones.sum()), "said": said[:8]}


def main():
    wanted, arguments = sys.argv[1], [int(each) for each in sys.argv[2:]]
    chosen = {each.__name__: each for each in (see, add, load, spin, allocate, command, fault, reduce)}[wanted]
    try:
        found = chosen(*arguments)
    except (CudaError, OSError) as error:
        print(json.dumps({"failed": str(error)}))
        return 1
    print(json.dumps(found))
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stdout.close()
    os._exit(0)  # after a fault CUDA's own end may hang


if __name__ == "__main__":
    sys.exit(main())
