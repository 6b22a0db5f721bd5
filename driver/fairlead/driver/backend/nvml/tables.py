"""NVML's numbers as words, and what follows from a GPU's generation. Source: nvml.h of driver 580."""

from __future__ import annotations

from fairlead.driver.backend.types import ComputeMode, RecoveryAction, ThrottleReason

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
ADDRESSING = {0: "None", 1: "HMM", 2: "ATS"}
RECOVERY_ACTIONS: dict[int, RecoveryAction] = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain",
    4: "drain",
    5: "imex",
    6: "reset",
    7: "reboot",
}
# NVML_COMPUTEMODE_*; 1, exclusive to a thread, is gone since CUDA 8.
COMPUTE_MODES: dict[int, ComputeMode] = {0: "Default", 2: "Prohibited", 3: "ExclusiveProcess"}
# nvmlClocksEventReason*. The other bits (idle, clocks that an administrator set) hold nothing down.
THROTTLE_BITS: dict[ThrottleReason, int] = {
    "power_cap": 0x04,
    "hw_slowdown": 0x08,
    "sync_boost": 0x10,
    "thermal_sw": 0x20,
    "thermal_hw": 0x40,
    "power_brake": 0x80,
}
# CUDA cores in a multiprocessor, by compute capability; NVML counts only cores.
CORES = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (10, 3): 128}
