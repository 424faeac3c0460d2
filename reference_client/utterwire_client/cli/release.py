"""Which release of the program this is."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["release"]


def release() -> str:
    """The version, as `--version` and the files that are written tell it."""
    try:
        return version("utterwire")
    except PackageNotFoundError:  # a checkout that is not installed
        return "(not installed)"
