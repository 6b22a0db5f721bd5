"""The demo: a cluster in a process, the examples on it, and a check of everything that happened."""
