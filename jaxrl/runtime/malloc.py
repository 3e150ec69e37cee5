"""The heap of glibc, which grows with every checkpoint unless it is told otherwise.

The threads of each save would take their memory from arenas of their own, where what is free lies
between what is not: some 1.7 MB a checkpoint, none of it in use. Other libcs are left alone.
"""

import contextlib
import ctypes

M_ARENA_MAX = -8  # <malloc.h>


def share_arenas() -> None:
    """All threads that begin from now on share two arenas."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def trim() -> None:
    """Gives whole pages that are free back to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
