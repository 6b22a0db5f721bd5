"""The worst-case cost of a program, without input, as the API server estimates it."""
