"""What a scrape says of the node's GPUs, MIG devices and slices, and of the claims and pods that have them.

Enters: what the last poll of the hardware read, the records of claims. Leaves: metric families of Prometheus. A scrape
never waits for hardware. `collector.GpuCollector` is the entrance; `readings` are our names for
what is known of each device, `dcgm` is DCGM exporter's. What the driver counts of its own work is common/metrics.py's.
"""
