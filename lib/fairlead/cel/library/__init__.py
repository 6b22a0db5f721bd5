"""The functions that CEL programs may call, one library a module."""
