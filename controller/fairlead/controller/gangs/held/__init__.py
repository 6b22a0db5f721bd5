"""Gangs that hold devices: what queues are charged for, places that are kept or come free, and devices that are idle."""
