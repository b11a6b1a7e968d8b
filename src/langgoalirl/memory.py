"""How much memory was needed, and keeping what was freed: large tensors become cheap on Linux."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt


def keep_freed_memory() -> None:
    """Let the allocator keep large blocks for the next tensor of their size.

    By default glibc hands them back to the system at once, and every new one is paid for with a
    page fault per 4 KiB, which shows in `langgoalirl bench world`. Does nothing elsewhere.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 1 << 30)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def peak_memory() -> float:
    """The most that this process has held at once, in gigabytes; 0 where that is not known."""
    with suppress(ImportError):  # not on Windows
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**30 if sys.platform == "darwin" else 2**20)
    return 0.0
