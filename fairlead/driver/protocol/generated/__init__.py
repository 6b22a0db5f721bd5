"""Made by fairlead/driver/protocol/generate.py; not edited by hand."""
