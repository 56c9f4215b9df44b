"""Two ways to fail, each with its exit code."""


class CannotStart(Exception):
    """Exit code 2: something is missing, or a contender does not start. Says what to do next."""


class BadMeasurement(Exception):
    """Exit code 1: it ran, and the result is no measurement."""
