"""Limits of slices, claims and classes. Constants only.

Source: staging/src/k8s.io/api/resource/v1/types.go (1.36).
"""

from typing import Final

DEVICES: Final = 128
ADVANCED_DEVICES: Final = 64  # when any device has taints or consumes counters
ATTRIBUTES_AND_CAPACITIES: Final = 32
ATTRIBUTE_VALUE_BYTES: Final = 64
ID_BYTES: Final = 32
POOL_NAME_BYTES: Final = 253
DRIVER_NAME_BYTES: Final = 63
COUNTER_SETS: Final = 8
COUNTERS: Final = 32
CONSUMPTIONS: Final = 2
TAINTS: Final = 16
BINDING_CONDITIONS: Final = 4
VALID_VALUES: Final = 10

REQUESTS: Final = 32
CONSTRAINTS: Final = 32
CONFIGS: Final = 32
SELECTORS: Final = 32
FIRST_AVAILABLE: Final = 8
OPAQUE_BYTES: Final = 10 * 1024
EXPRESSION_BYTES: Final = 10 * 1024
EXPRESSION_COST: Final = 1_000_000

RESULTS: Final = 32
ALLOCATED_CONFIGS: Final = 64
RESERVED_FOR: Final = 256
DEVICE_CONDITIONS: Final = 8
DEVICE_DATA_BYTES: Final = 10 * 1024
INTERFACE_NAME_BYTES: Final = 256
IPS: Final = 16
HARDWARE_ADDRESS_BYTES: Final = 128
