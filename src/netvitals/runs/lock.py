"""One writer a file: a lock that the operating system takes back when its holder dies, however it dies.

The lock is on a file of its own beside the one it guards: whoever opens and closes the SQLite file itself would drop
the locks that SQLite holds on it. It carries the process number of its holder, for the sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
import weakref
from functools import cache
from pathlib import Path

from netvitals._help import hint

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without flock: no two writers are kept apart there
    fcntl = None  # type: ignore[assignment]

ATTEMPTS, WAIT_S = 5, 0.01

_open: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLocked(OSError):
    """Somebody alive writes this file.

    Raised by :class:`FileLock`.
    """


class FileLock:
    """Holds ``file`` for one writer until :meth:`release`, or until the process is gone.

    Args:
        file: the file to hold; the lock itself is a small file beside it.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "run.sqlite"
    >>> held = FileLock(file)
    >>> try:
    ...     FileLock(file)
    ... except FileLocked as error:
    ...     print("is written" in str(error))
    True
    >>> held.release(); FileLock(file).release(); FileLock.holder(file) is None
    True
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._descriptor = -1
        attempts = ATTEMPTS
        place = _beside(file)
        while True:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _take(descriptor)
            except OSError:
                if attempts := attempts - 1:  # whoever asks for the holder has it for a moment
                    os.close(descriptor)
                    time.sleep(WAIT_S)
                    continue
                holder = _number(descriptor)
                os.close(descriptor)
                who = "this process" if holder == os.getpid() else f"process {holder}" if holder else "another process"
                raise FileLocked(
                    f"{file} is written by {who}, which is alive; close that one first, or choose another path "
                    f"{hint('run-locked')}"
                ) from None
            if _same(descriptor, place):
                break
            os.close(descriptor)  # its last holder removed the file between our opening and locking it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        _open.add(self)

    def release(self) -> None:
        """Let others write; releasing twice is harmless."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the folder may be gone
                if _same(self._descriptor, _beside(self.file)):
                    os.unlink(_beside(self.file))
            os.close(self._descriptor)
            self._descriptor = -1

    @staticmethod
    def holder(file: Path) -> int | None:
        """The number of the process that holds ``file`` now (0 if it is not known); None if nobody does.

        Args:
            file: the file that may be held.
        """
        try:
            descriptor = os.open(_beside(file), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if fcntl is None:
                return _number(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except OSError:
            return _number(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def was_held(file: Path) -> bool:
        """Whether somebody holds the file, or was ended while holding it: the lock of a copy stays behind.

        Args:
            file: the file that may have been held.
        """
        return _beside(file).exists()

    def _forked(self) -> None:
        """A child that lives on must not hold what its dead parent held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@cache
def this_machine() -> str:
    """A mark of this machine until it starts anew; the same in its containers, whose locks are seen here."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        name = platform.node()
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}-lock")


def _take(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _same(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(place))
    except OSError:
        return False


def _number(descriptor: int) -> int:
    try:
        return int(os.pread(descriptor, 20, 0) or b"0")
    except (OSError, ValueError):
        return 0


def _in_child() -> None:
    for lock in list(_open):
        lock._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
