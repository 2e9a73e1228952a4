"""Dynamo's names are looked at in a Dynamo that has compiled nothing."""

from tests.unit.dynamo.conftest import fresh_dynamo

__all__ = ["fresh_dynamo"]
