"""The name of a time zone as a field of our kinds."""

from typing import Annotated

from pydantic import AfterValidator, Field

from fairlead.api.recurrence import ZONE_LENGTH_MAX, checked_zone

TimeZone = Annotated[
    str, AfterValidator(checked_zone), Field(json_schema_extra={"minLength": 1, "maxLength": ZONE_LENGTH_MAX})
]
