"""Recordings: segments of records on disk, one writer, any number of readers; and plans as recordings keep them.

Entrances: `writer.RecordingWriter`, `reader.Reader`, `recorder.FlightRecorder` (the writer beside a loop), `verify.differences`, `anonymise`.
"""
