"""Opening files where somebody else may have put something: a link, a pipe that nobody reads or writes, a device."""

from __future__ import annotations

import errno
import os
import stat


def regular(path: str, flags: int) -> int:
    """For `open(path, mode, opener=regular)`: a regular file, at once. What is written does not go through a link.

    Raises
    ------
    OSError : for anything else, which is left as it was.

    Examples
    --------
    >>> open(os.devnull, opener=regular)
    Traceback (most recent call last):
    OSError: [Errno 22] is no regular file: '/dev/null'
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if writes and os.path.islink(path):
        raise OSError(errno.ELOOP, "is a link", path)
    descriptor = os.open(path, flags | os.O_NONBLOCK | (os.O_NOFOLLOW if writes else 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return descriptor
