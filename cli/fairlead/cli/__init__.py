"""The command line: parses flags, calls one program or view, prints. Decides nothing itself."""
