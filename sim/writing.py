"""Where results go: a place that cannot take them is refused before any work, and a file is there whole or not."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim.errors import InputError

#: What the file system says where the path that was given is at fault; a full or broken disk is not among it.
_PATH_AT_FAULT = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
                  errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EOPNOTSUPP}


def check_place(path: Path, *, field: str | None = None, folder: bool = False, make_parents: bool = False) -> None:
    """Make sure that something may be written at `path`, before any work is done.

    Parameters
    ----------
    path
        A file or folder that is to be written; it need not exist.
    field
        The option that named it.
    folder
        Whether it is a folder to write into.
    make_parents
        Whether missing folders above it will be made.

    Raises
    ------
    InputError
        It is a folder where a file is meant; it lies below a file, in a folder that is missing (unless `make_parents`)
        or in which nothing may be written; or its name is too long.
    OSError
        The disk is full or broken.
    """
    try:
        whole = path.absolute()
        if whole.is_dir():
            if not folder:
                raise InputError("is a folder; give a file", field=field, got=str(path))
            _probe(whole)
            return
        above = next(each for each in whole.parents if each.exists() or each.is_symlink())
        if not above.is_dir():
            raise _refused(path, field, f"{above} is a file" if above.is_file() else f"{above} is not a folder")
        if above != whole.parent and not (make_parents and ".." not in whole.relative_to(above).parts):
            raise _refused(path, field, "its folder does not exist")
        with suppress(FileNotFoundError):
            os.lstat(whole)
        _probe(above)
        if whole.is_file() and not os.access(whole, os.W_OK):
            raise _refused(path, field, "Permission denied")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, OSError) and error.errno not in _PATH_AT_FAULT:
            raise
        raise _refused(path, field, (isinstance(error, OSError) and error.strerror) or str(error)) from None


def _refused(path: Path, field: str | None, why: str) -> InputError:
    return InputError(f"cannot be written: {why}", field=field, got=str(path))


def _probe(folder: Path) -> None:
    """Make a file in a folder and remove it: permissions alone do not say whether that works."""
    probe = folder / f".kvplan-probe-{secrets.token_hex(4)}"
    os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    probe.unlink()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name to write to, with the same ending; afterwards the file is moved to `path`.

    On any error, and when interrupted, what was at `path` is as it was and nothing is left beside it.
    """
    partial = path.with_name(f".{secrets.token_hex(4)}-{path.name}"[-200:])
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
