"""The version of this Fairlead; a test compares it with the wheel, the chart and the image."""

from typing import Final

VERSION: Final = "0.1.0"
