"""Which pods make which gang, and what a gang consists of."""
