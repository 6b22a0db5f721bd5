"""Gangs that wait: what the engine is asked for, holds, and the next step of an admission that was interrupted."""
