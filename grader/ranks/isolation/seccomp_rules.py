"""The system calls that a rank may not make: the whole list, in one table.

Everything else is allowed, since torch and Python need most of it. A row is the call, its
number on x86_64 and on aarch64 (None: there is no such call), what it answers, and when
the row is in force. Numbers are from Linux's `asm/unistd_64.h` and `asm-generic/unistd.h`;
a call without a row here that is new in a later kernel is to be added, not to be waited for.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from grader.ranks.isolation import landlock, layers
from grader.ranks.isolation.layers import Support

ALWAYS = "always"
SHARED_FILES = "files are the machine's"
SHARED_FILES_OLD_LANDLOCK = "files are the machine's, and Landlock is older than ABI 3"
SHARED_IPC = "System V ids and message queues are the machine's"
SHARED_SIGNALS = "processes outside can be signalled"
SHARED_PROCESSES = "processes outside belong to the same user"


def in_force(support: Support) -> frozenset[str]:
    """The conditions that hold on this machine."""
    hidden = support.has(layers.PID) or support.has(layers.UID)
    own_files = support.has(layers.ROOT) or support.has(layers.UID)
    conditions = {
        ALWAYS: True,
        SHARED_FILES: not own_files,
        SHARED_FILES_OLD_LANDLOCK: not support.has(layers.ROOT)
        and support.landlock_abi < landlock.ABI_TRUNCATE,
        SHARED_IPC: not support.has(layers.IPC),
        SHARED_SIGNALS: not hidden and not support.has(layers.SCOPES),
        SHARED_PROCESSES: not hidden,
    }
    return frozenset(name for name, holds in conditions.items() if holds)


class Rule(NamedTuple):
    """One call that is refused."""

    call: str
    x86_64: int | None
    aarch64: int | None
    answer: int
    """The error number it gets."""
    when: str = ALWAYS


_EPERM, _EACCES, _ENOSYS = errno.EPERM, errno.EACCES, errno.ENOSYS

RULES = (
    # Other processes: their memory, their descriptors, their state.
    Rule("ptrace", 101, 117, _EPERM),
    Rule("process_vm_readv", 310, 270, _EPERM),
    Rule("process_vm_writev", 311, 271, _EPERM),
    Rule("process_madvise", 440, 440, _EPERM),
    Rule("process_mrelease", 448, 448, _EPERM),
    Rule("pidfd_getfd", 438, 438, _EPERM),
    Rule("kcmp", 312, 272, _EPERM),
    # The view of the file system.
    Rule("mount", 165, 40, _EPERM),
    Rule("umount2", 166, 39, _EPERM),
    Rule("pivot_root", 155, 41, _EPERM),
    Rule("chroot", 161, 51, _EPERM),
    Rule("move_mount", 429, 429, _EPERM),
    Rule("open_tree", 428, 428, _EPERM),
    Rule("open_tree_attr", 467, 467, _EPERM),
    Rule("fsopen", 430, 430, _EPERM),
    Rule("fsconfig", 431, 431, _EPERM),
    Rule("fsmount", 432, 432, _EPERM),
    Rule("fspick", 433, 433, _EPERM),
    Rule("mount_setattr", 442, 442, _EPERM),
    Rule("statmount", 457, 457, _EPERM),
    Rule("listmount", 458, 458, _EPERM),
    # Namespaces. clone is looked at more closely, and clone3 cannot be: its flags are in memory.
    Rule("unshare", 272, 97, _EPERM),
    Rule("setns", 308, 268, _EPERM),
    Rule("clone3", 435, 435, _ENOSYS),
    # Programs. Landlock refuses those on disk, not those made in memory.
    Rule("execve", 59, 221, _EACCES),
    Rule("execveat", 322, 281, _EACCES),
    Rule("uselib", 134, None, _EACCES),
    Rule("memfd_create", 319, 279, _EPERM),
    Rule("memfd_secret", 447, 447, _EPERM),
    # Wide doors into the kernel that no exercise needs.
    Rule("bpf", 321, 280, _EPERM),
    Rule("perf_event_open", 298, 241, _EPERM),
    Rule("userfaultfd", 323, 282, _EPERM),
    Rule("io_uring_setup", 425, 425, _EPERM),
    Rule("io_uring_enter", 426, 426, _EPERM),
    Rule("io_uring_register", 427, 427, _EPERM),
    Rule("add_key", 248, 217, _EPERM),
    Rule("request_key", 249, 218, _EPERM),
    Rule("keyctl", 250, 219, _EPERM),
    Rule("personality", 135, 92, _EPERM),
    Rule("modify_ldt", 154, None, _EPERM),
    Rule("iopl", 172, None, _EPERM),
    Rule("ioperm", 173, None, _EPERM),
    Rule("init_module", 175, 105, _EPERM),
    Rule("finit_module", 313, 273, _EPERM),
    Rule("delete_module", 176, 106, _EPERM),
    Rule("kexec_load", 246, 104, _EPERM),
    Rule("kexec_file_load", 320, 294, _EPERM),
    Rule("name_to_handle_at", 303, 264, _EPERM),
    Rule("open_by_handle_at", 304, 265, _EPERM),
    Rule("fanotify_init", 300, 262, _EPERM),
    Rule("lookup_dcookie", 212, 18, _EPERM),
    Rule("quotactl", 179, 60, _EPERM),
    Rule("quotactl_fd", 443, 443, _EPERM),
    Rule("nfsservctl", 180, 42, _EPERM),
    Rule("syslog", 103, 116, _EPERM),
    # The machine: its clock, its name, its power.
    Rule("clock_settime", 227, 112, _EPERM),
    Rule("clock_adjtime", 305, 266, _EPERM),
    Rule("settimeofday", 164, 170, _EPERM),
    Rule("adjtimex", 159, 171, _EPERM),
    Rule("sethostname", 170, 161, _EPERM),
    Rule("setdomainname", 171, 162, _EPERM),
    Rule("swapon", 167, 224, _EPERM),
    Rule("swapoff", 168, 225, _EPERM),
    Rule("reboot", 169, 142, _EPERM),
    Rule("acct", 163, 89, _EPERM),
    Rule("vhangup", 153, 58, _EPERM),
    # Owners, modes and times of files, which Landlock does not cover.
    Rule("chmod", 90, None, _EPERM, SHARED_FILES),
    Rule("fchmod", 91, 52, _EPERM, SHARED_FILES),
    Rule("fchmodat", 268, 53, _EPERM, SHARED_FILES),
    Rule("fchmodat2", 452, 452, _EPERM, SHARED_FILES),
    Rule("chown", 92, None, _EPERM, SHARED_FILES),
    Rule("fchown", 93, 55, _EPERM, SHARED_FILES),
    Rule("lchown", 94, None, _EPERM, SHARED_FILES),
    Rule("fchownat", 260, 54, _EPERM, SHARED_FILES),
    Rule("utime", 132, None, _EPERM, SHARED_FILES),
    Rule("utimes", 235, None, _EPERM, SHARED_FILES),
    Rule("futimesat", 261, None, _EPERM, SHARED_FILES),
    Rule("utimensat", 280, 88, _EPERM, SHARED_FILES),
    Rule("setxattr", 188, 5, _EPERM, SHARED_FILES),
    Rule("lsetxattr", 189, 6, _EPERM, SHARED_FILES),
    Rule("fsetxattr", 190, 7, _EPERM, SHARED_FILES),
    Rule("removexattr", 197, 14, _EPERM, SHARED_FILES),
    Rule("lremovexattr", 198, 15, _EPERM, SHARED_FILES),
    Rule("fremovexattr", 199, 16, _EPERM, SHARED_FILES),
    Rule("setxattrat", 463, 463, _EPERM, SHARED_FILES),
    Rule("removexattrat", 466, 466, _EPERM, SHARED_FILES),
    Rule("file_setattr", 469, 469, _EPERM, SHARED_FILES),
    # Cutting files short by name, which Landlock covers since ABI 3.
    Rule("truncate", 76, 45, _EPERM, SHARED_FILES_OLD_LANDLOCK),
    # What outlives a process.
    Rule("shmget", 29, 194, _EPERM, SHARED_IPC),
    Rule("semget", 64, 190, _EPERM, SHARED_IPC),
    Rule("msgget", 68, 186, _EPERM, SHARED_IPC),
    Rule("mq_open", 240, 180, _EPERM, SHARED_IPC),
    Rule("mq_unlink", 241, 181, _EPERM, SHARED_IPC),
    # Signals by other ways than kill and tgkill, which are looked at more closely.
    Rule("tkill", 200, 130, _EPERM, SHARED_SIGNALS),
    Rule("rt_sigqueueinfo", 129, 138, _EPERM, SHARED_SIGNALS),
    Rule("rt_tgsigqueueinfo", 297, 240, _EPERM, SHARED_SIGNALS),
    Rule("pidfd_send_signal", 424, 424, _EPERM, SHARED_SIGNALS),
    # Hampering other processes of the same user.
    Rule("setpriority", 141, 140, _EPERM, SHARED_PROCESSES),
    Rule("sched_setscheduler", 144, 119, _EPERM, SHARED_PROCESSES),
    Rule("sched_setparam", 142, 118, _EPERM, SHARED_PROCESSES),
    Rule("sched_setattr", 314, 274, _EPERM, SHARED_PROCESSES),
    Rule("ioprio_set", 251, 30, _EPERM, SHARED_PROCESSES),
    Rule("migrate_pages", 256, 238, _EPERM, SHARED_PROCESSES),
    Rule("move_pages", 279, 239, _EPERM, SHARED_PROCESSES),
)

CLOSER = {
    # Calls that `seccomp` decides on by their arguments: (x86_64, aarch64).
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}
