"""What a child does between fork and exec. Run by path, as a script: it imports the standard library only.

    child.py PARENT_PID DEATH_SIGNAL MODE UID GID DIRECTORY PROGRAM [ARGUMENT...]

Doing this in a fresh interpreter, not in `preexec_fn`, keeps it safe in a parent that has threads.
"""

import ctypes
import os
import sys
from collections.abc import Sequence

CLONE_NEWUSER = 0x10000000  # linux/sched.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOBODY_INSIDE = 65534  # the uid and gid that the server sees in its namespace; files outside stay the caller's
EXIT_CANNOT = 71  # EX_OSERR


def main(argv: Sequence[str]) -> None:
    parent_pid, death_signal, mode, uid, gid, directory, *command = argv
    if mode == "namespace":
        enter_namespace()
    elif mode == "nobody":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    # After the credentials changed, because a change clears it.
    ask_for_death_signal(int(death_signal))
    if os.getppid() != int(parent_pid):
        raise OSError("the parent ended before the child could watch it")
    os.chdir(directory)
    if not os.access(".", os.W_OK):
        raise PermissionError(f"cannot write in {directory}")
    os.execv(command[0], command)  # noqa: S606 — the launcher wrote the whole vector, no shell


def enter_namespace() -> None:
    if sys.platform != "linux":
        raise OSError(f"{sys.platform} has no user namespaces")
    uid, gid = os.geteuid(), os.getegid()
    _checked("unshare", CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),  # the kernel asks for it before an unprivileged gid_map
        ("uid_map", f"{NOBODY_INSIDE} {uid} 1"),
        ("gid_map", f"{NOBODY_INSIDE} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def ask_for_death_signal(number: int) -> None:
    """Where the system has no such signal (macOS) the server outlives a killed parent, and is adopted later."""
    if sys.platform == "linux":
        _checked("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)


def _checked(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_CANNOT)
