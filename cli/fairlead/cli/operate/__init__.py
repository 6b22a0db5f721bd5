"""What an operator does to a running cluster: `fairlead hold | resume`, `fairlead device drain | undrain`, `fairlead top`.

All with the caller's own rights.
"""
