"""The ledger on disk: SQLite in a directory, or PostgreSQL by URL, with the same tables (`schema`).

Entrances: `writer.open_writer` for the leader and `writer.prune`, `reader.open_reader` for everyone, `copying.backup`.
"""
