"""The phases of a gang. Apart from our kinds, whose models take a third of a second to import."""

from __future__ import annotations

from typing import Literal

Phase = Literal["Waiting", "Gathering", "Evicted", "Admitted", "Running", "Finished", "Failed"]
