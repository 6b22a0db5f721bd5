"""What is wrong with a recording."""

from __future__ import annotations


class RecordingError(Exception):
    """Names the file, the record, what it holds, and what to do."""


class LockedError(RecordingError):
    """Another process writes into the directory."""


class EmptySegmentError(RecordingError):
    """Not one record of it was written before its writer ended."""
