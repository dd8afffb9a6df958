"""Every test of the command line runs in an empty directory and without settings of its own."""

import os

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Return the empty directory that the command runs in."""
    for name in [name for name in os.environ if name.startswith("FLODL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def flodl(capsys):
    """Return a function that runs one command here and returns code, output and errors."""
    from flodl_core.cli.main import main

    def run(*words):
        capsys.readouterr()
        code = main(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def refused(flodl):
    """Return a function that runs a command which must fail; it returns code and error text."""

    def run(*words):
        code, out, err = flodl(*words)
        lines = err.splitlines()
        assert code != 0
        assert out == ""
        assert [line for line in lines if line.startswith("error: ")] == lines[:1]
        assert all(line.startswith("  ") for line in lines[1:])
        assert "Traceback" not in err
        return code, err

    return run
