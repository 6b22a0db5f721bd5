"""Selectors of devices: one, many devices at once, what an expression reads of a device, and which drivers' devices may match."""
