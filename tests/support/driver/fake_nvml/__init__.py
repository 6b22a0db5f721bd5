"""A stand-in for the `pynvml` module: NVML's calls, structs and exceptions over a node profile.

Tests of the NVML backend run down to the module that it calls, without a GPU. It behaves as the library does where
callers depend on it: handles are opaque, arrays are filled by reference, a query that a GPU lacks raises
NVMLError_NotSupported. Constants, struct types and exceptions are the real module's.
"""

from tests.support.driver.fake_nvml.library import FakeNvml

__all__ = ["FakeNvml"]
