"""A checked tree as Python closures, and the frame that they run in."""
