"""Recordings: segments of records on disk, one writer, any number of readers.

Entrances: `writer.RecordingWriter`, `reader.read`, `recorder.FlightRecorder` (the writer beside a loop), `anonymise.anonymise`.
"""
