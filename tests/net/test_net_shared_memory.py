"""Memory files: sealed, nameless, mapped by descriptor, lost in forked children."""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError, RemoteProtocolError
from flodl_core.net import shared_memory
from flodl_core.net.shared_memory import (
    create_memfd,
    is_sealed,
    map_fd,
    read_only_duplicate,
)

MAKERS = {
    "memfd": lambda: create_memfd("slot", 8192),
    "libc": lambda: sized(shared_memory._memfd_through_libc("slot", 3)),
    "unlinked file": lambda: sized(shared_memory._unlinked_file()),
}


def sized(fd):
    os.ftruncate(fd, 8192)
    return fd


@pytest.fixture(params=MAKERS)
def fd(request):
    made = MAKERS[request.param]()
    yield made
    os.close(made)


def test_two_mappings_of_one_file_share_their_bytes(fd):
    writer, reader = map_fd(fd, 8192, writable=True), map_fd(fd, 8192, writable=False)
    assert reader[:] == bytes(8192)
    writer[4096:4101] = b"there"
    assert reader[4096:4101] == b"there"


def test_a_read_only_mapping_cannot_be_written(fd):
    reader = map_fd(fd, 8192, writable=False)
    with pytest.raises(TypeError):
        reader[0] = 1


def test_a_read_only_duplicate_cannot_be_mapped_writable(fd):
    duplicate = read_only_duplicate(fd)
    try:
        map_fd(fd, 8192, writable=True)[:2] = b"ok"
        assert map_fd(duplicate, 8192, writable=False)[:2] == b"ok"
        with pytest.raises(OSError, match="denied"):
            map_fd(duplicate, 8192, writable=True)
        assert not os.get_inheritable(duplicate)
    finally:
        os.close(duplicate)


def test_a_memory_file_can_neither_shrink_nor_grow():
    fd = create_memfd("slot", 8192)
    try:
        assert is_sealed(fd)
        for size in (4096, 16384):
            with pytest.raises(OSError, match="permitted"):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)


def test_an_unlinked_file_has_no_name_and_no_seal():
    before = set(Path("/dev/shm").iterdir())
    fd = shared_memory._unlinked_file()
    try:
        assert set(Path("/dev/shm").iterdir()) == before
        assert not is_sealed(fd)
    finally:
        os.close(fd)


def test_a_file_smaller_than_announced_is_refused(fd):
    with pytest.raises(
        RemoteProtocolError, match="8193 bytes was announced, but its file has 8192"
    ):
        map_fd(fd, 8193, writable=False)


@given(st.integers(max_value=0))
def test_a_segment_without_bytes_is_our_bug(nbytes):
    with pytest.raises(LocalProtocolError):
        create_memfd("slot", nbytes)


def test_a_mapping_survives_the_closing_of_its_descriptor():
    fd = create_memfd("slot", mmap.PAGESIZE)
    view = map_fd(fd, mmap.PAGESIZE, writable=True)
    os.close(fd)
    view[0] = 7
    assert view[0] == 7


FORKS = """
import os
from flodl_core.net.shared_memory import create_memfd, guard_from_forks, unguard

guarded, other = create_memfd("slot", 4096), create_memfd("slot", 4096)
guard_from_forks(guarded)
null = os.stat(os.devnull).st_rdev

def ask_forked_child(check):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    assert os.waitpid(pid, 0)[1] == 0

ask_forked_child(lambda: os.fstat(guarded).st_rdev == null)
ask_forked_child(lambda: os.fstat(other).st_size == 4096)
assert os.fstat(guarded).st_size == 4096
unguard(guarded)
ask_forked_child(lambda: os.fstat(guarded).st_size == 4096)
"""


@pytest.mark.processes
def test_a_forked_child_loses_guarded_descriptors_and_the_parent_keeps_them():
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=30)


def test_libc_offers_the_call_where_python_may_not():
    assert hasattr(ctypes.CDLL(None), "memfd_create")
