"""What every part of the driver uses: files, locks, threads, launched programs, metrics.

Enters: paths, keys, blocking work. Leaves: files written whole, work done in threads with a deadline on the waiting.
Nothing here is about GPUs, claims or protocols. Each module stands alone; there is no common entrance.
"""
