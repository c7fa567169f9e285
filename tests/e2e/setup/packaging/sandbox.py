"""Starts a program under the system call filters of a systemd unit, by the library that systemd uses:

    sandbox.py LIBSECCOMP UNIT PROGRAM [ARGUMENT...]

A call that SystemCallFilter does not allow kills the program (SIGSYS), where systemd would answer with
an error: so none is overlooked. RestrictAddressFamilies, RestrictNamespaces and RestrictSUIDSGID answer
as systemd 252 does (src/shared/seccomp-util.c).
"""

import ctypes
import errno
import os
import socket
import subprocess
import sys

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EQUAL = 4  # SCMP_CMP_EQ
FAMILIES = 64  # more than Linux has


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Filter:
    """A filter with this action for what no rule names."""

    def __init__(self, library, default):
        self.library = library
        library.seccomp_init.restype = ctypes.c_void_p
        library.seccomp_init.argtypes = [ctypes.c_uint32]
        self.context = ctypes.c_void_p(library.seccomp_init(default))

    def rule(self, action, call, *comparisons):
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return  # of another architecture
        array = (Comparison * len(comparisons))(*comparisons)
        add = self.library.seccomp_rule_add_array
        failed = add(self.context, ctypes.c_uint32(action), number, len(comparisons), array)
        if failed:
            sys.exit(f"seccomp_rule_add_array of {call}: {os.strerror(-failed)}")

    def load(self):
        failed = self.library.seccomp_load(self.context)
        if failed:
            sys.exit(f"seccomp_load: {os.strerror(-failed)}")


def settings(unit, name):
    with open(unit) as lines:
        found = [line.strip() for line in lines if line.startswith(f"{name}=")]
    return [line.partition("=")[2] for line in found]


def calls(name):
    """The calls of a set, or the call itself."""
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    members = [line.strip() for line in listed.stdout.splitlines()[1:]]
    members = [member for member in members if member and not member.startswith("#")]
    return set().union(*map(calls, members))


def allowed(unit):
    """All calls that stay after each line of the unit."""
    found = set()
    for line in settings(unit, "SystemCallFilter"):
        named = set().union(*map(calls, line.lstrip("~").split()))
        found = found - named if line.startswith("~") else found | named
    return found


def main():
    library, unit, *command = sys.argv[1:]
    library = ctypes.CDLL(library, use_errno=True)
    system_calls = Filter(library, KILL_PROCESS)
    # What systemd 252 answers with ENOSYS, where a filter of arguments cannot look into memory:
    # libc and others then use the older calls.
    opaque = [("RestrictNamespaces", "clone3"), ("RestrictSUIDSGID", "openat2")]
    opaque = {call for name, call in opaque if settings(unit, name) == ["yes"]}
    for call in allowed(unit) - opaque:
        system_calls.rule(ALLOW, call)
    for call in opaque:
        system_calls.rule(ERRNO | errno.ENOSYS, call)
    families = {int(getattr(socket, name)) for line in settings(unit, "RestrictAddressFamilies") for name in line.split()}
    sockets = Filter(library, ALLOW)
    for family in set(range(FAMILIES)) - families:
        sockets.rule(ERRNO | errno.EAFNOSUPPORT, "socket", Comparison(0, EQUAL, family, 0))
    # The one that may load no other is last.
    sockets.load()
    system_calls.load()
    os.execvp(command[0], command)


main()
