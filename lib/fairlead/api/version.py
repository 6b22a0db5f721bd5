"""The version of this Fairlead: `fairlead --version`, the wheel, the chart and the image agree on it (a test compares)."""

from typing import Final

VERSION: Final = "0.1.0"
