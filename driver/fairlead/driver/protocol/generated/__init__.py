"""Made by driver/fairlead/driver/protocol/generate.py; not edited by hand."""
