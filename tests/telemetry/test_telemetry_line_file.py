import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.telemetry.line_file import LineFile, escape_untrusted


@settings(deadline=None)
@given(st.text(max_size=60))
def test_an_escaped_text_stays_on_one_line_and_holds_nothing_unprintable(text):
    shown = escape_untrusted(text)
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
    shown.encode()


def test_terminal_sequences_newlines_and_direction_marks_are_spelled_out():
    assert escape_untrusted("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert escape_untrusted("a\nb\x00") == "a\\x0ab\\x00"
    assert escape_untrusted("a\u202eb") == "a\\u202eb"
    assert escape_untrusted("a\U000e0001b") == "a\\U000e0001b"
    assert escape_untrusted("a\ud800b") == "a\\ud800b"
    assert escape_untrusted("a\\n") == "a\\\\n"


@settings(deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_two_texts_never_look_the_same_once_escaped(one, other):
    assert (escape_untrusted(one) == escape_untrusted(other)) == (one == other)


def test_what_people_write_stays_as_it_is():
    assert escape_untrusted("Grüße, γ = 1 – 世界") == "Grüße, γ = 1 – 世界"


def test_a_long_text_is_cut():
    assert escape_untrusted("x" * 50, limit_chars=10) == "x" * 9 + "…"


def test_lines_are_on_disk_as_soon_as_they_are_appended(tmp_path):
    file = LineFile(tmp_path / "deep" / "er" / "a.log")
    assert file.append("one")
    assert file.append_all(["two", "three"])
    assert file.path.read_text() == "one\ntwo\nthree\n"
    file.close()


def test_a_line_end_inside_a_line_is_escaped(tmp_path):
    file = LineFile(tmp_path / "a.log")
    file.append("one\r\ntwo")
    assert file.path.read_text() == "one\\r\\ntwo\n"
    file.close()


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=80))
def test_the_two_files_stay_within_the_limit_and_keep_the_newest_lines(sizes, tmp_path_factory):
    file = LineFile(tmp_path_factory.mktemp("l") / "a.log", limit_bytes=200)
    lines = [f"{number}:{'x' * size}" for number, size in enumerate(sizes)]
    for line in lines:
        assert file.append(line)
    file.close()
    kept = file.old_path.read_text() if file.old_path.exists() else ""
    now = file.path.read_text()
    assert len(now) <= 100
    assert len(kept) <= 100
    written = (kept + now).splitlines()
    assert written == lines[len(lines) - len(written) :]


def test_a_file_that_exists_is_continued_within_the_limit(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("old line\n" * 11)
    file = LineFile(path, limit_bytes=200)
    file.append("a line that does not fit beside those")
    file.close()
    assert path.read_text() == "a line that does not fit beside those\n"
    assert file.old_path.read_text() == "old line\n" * 11


def test_a_line_longer_than_the_limit_is_written_alone(tmp_path):
    file = LineFile(tmp_path / "a.log", limit_bytes=40)
    file.append("first")
    file.append("y" * 100)
    file.append("last")
    file.close()
    assert file.path.read_text() == "last\n"
    assert file.old_path.read_text() == "y" * 100 + "\n"


def test_a_write_that_fails_is_counted_and_not_raised(tmp_path):
    (tmp_path / "taken").write_text("a file where a directory is needed")
    file = LineFile(tmp_path / "taken" / "a.log")
    assert not file.append("one")
    assert not file.append_all(["two", "three"])
    assert file.lines_lost == 3
    assert "taken" in file.last_error


def test_a_file_recovers_when_the_disk_does(tmp_path):
    obstacle = tmp_path / "logs"
    obstacle.write_text("")
    file = LineFile(obstacle / "a.log")
    assert not file.append("one")
    obstacle.unlink()
    assert file.append("two")
    assert file.path.read_text() == "two\n"
    file.close()


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("one\ntw")
    file = LineFile(path)
    assert file.append_all(["three", "four"])
    assert path.read_text() == "one\ntw\nthree\nfour\n"
    file.close()


def test_a_closed_file_takes_no_more_lines(tmp_path):
    file = LineFile(tmp_path / "a.log")
    file.append("one")
    file.close()
    file.close()
    assert not file.append("two")
    assert file.lines_lost == 1
    assert file.path.read_text() == "one\n"


@pytest.mark.parametrize("text", ["\ud800", "ok \udcff"])
def test_lone_surrogates_can_be_written(tmp_path, text):
    file = LineFile(tmp_path / "a.log")
    assert file.append(text)
    file.close()
    assert file.path.read_text().isascii()
