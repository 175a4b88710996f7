"""File systems of a process's own: one that is small, one that cannot be written; for processes that are about to end."""

import ctypes
import os
from functools import cache
from pathlib import Path

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, BIND, ALL_BELOW, PRIVATE = 1, 32, 4096, 16384, 1 << 18


def make_read_only(folder: Path) -> None:
    """Let this process no longer write into a folder."""
    _own_mounts()
    _mount(str(folder), folder, "", BIND)
    _mount("", folder, "", BIND | REMOUNT | READ_ONLY)


def make_small(folder: Path, room: int) -> None:
    """Put a folder, for this process, on a file system with so many bytes beside what it holds."""
    held = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    _own_mounts()
    _mount("tmpfs", folder, "tmpfs", 0, "size=64m")
    for name, content in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    disk = os.statvfs(folder)
    _mount("tmpfs", folder, "tmpfs", REMOUNT, f"size={(disk.f_blocks - disk.f_bfree) * disk.f_frsize + room}")


def grow(folder: Path) -> None:
    """Give a small file system room."""
    _mount("tmpfs", folder, "tmpfs", REMOUNT, "size=64m")


@cache
def available() -> bool:
    """Whether a process may have file systems of its own here."""
    child = os.fork()
    if child == 0:
        try:
            _own_mounts()
            _mount("tmpfs", Path("/tmp"), "tmpfs", 0, "size=1m")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _own_mounts() -> None:
    user, group = os.geteuid(), os.getegid()
    _call("unshare", NEW_MOUNTS | (NEW_USER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("", Path("/"), "", ALL_BELOW | PRIVATE)


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    _call("mount", source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
