import json
import logging
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.telemetry.logs import (
    Level,
    ProcessLog,
    StandardHandler,
    format_record,
    format_value,
    one_line,
)


def make(tmp_path, **given_):
    return ProcessLog(
        tmp_path / "rank2.log",
        host="red",
        process="rank2",
        utc_iso=lambda: "2031-01-02T03:04:05.678Z",
        **given_,
    )


def lines(log):
    log.close()
    return log.file.path.read_text().splitlines()


def test_a_record_is_one_line_with_time_host_process_event_and_fields(tmp_path):
    log = make(tmp_path)
    log.info("sync_committed", cycle=12, ms=14.25, ranks=(0, 1), outcome="committed", late=False)
    assert lines(log) == [
        "2031-01-02T03:04:05.678Z INFO    red/rank2 sync_committed "
        "cycle=12 ms=14.25 ranks=0,1 outcome=committed late=false"
    ]


def test_a_record_without_fields_ends_with_its_event(tmp_path):
    log = make(tmp_path)
    log.warning("held")
    assert lines(log) == ["2031-01-02T03:04:05.678Z WARNING red/rank2 held"]


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_that_a_peer_says_can_end_a_record_or_forge_a_field(event, value):
    line = format_record(
        time="t", level=Level.INFO, where="red/rank2", event=event, fields={"reason": value}
    )
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    told = line.rpartition("reason=")[2] if '"' not in value else None
    if told is not None and not told.startswith('"'):
        assert told == value


@settings(deadline=None)
@given(st.text(max_size=40))
def test_a_quoted_value_is_a_json_string(value):
    shown = format_value(value)
    if shown.startswith('"'):
        assert isinstance(json.loads(shown), str)
    else:
        assert re.fullmatch(r"\S+", shown)


def test_values_read_as_what_they_are():
    assert format_value(None) == "none"
    assert format_value(True) == "true"
    assert format_value(7) == "7"
    assert format_value(0.1234567891) == "0.123457"
    assert format_value(float("nan")) == "nan"
    assert format_value("") == '""'
    assert format_value("two words") == '"two words"'
    assert format_value('say "hi"') == '"say \\"hi\\""'
    assert format_value(("a", "b")) == "a,b"


def test_records_below_the_level_are_not_written(tmp_path):
    log = make(tmp_path, level=Level.WARNING)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line.split()[-1] for line in lines(log)] == ["c", "d"]


def test_warnings_are_also_handed_on(tmp_path):
    heard = []
    log = make(tmp_path, on_record=lambda level, line: heard.append((level, line)))
    log.info("quiet")
    log.error("loud", why="because")
    assert [(level, line.split(maxsplit=2)[-1]) for level, line in heard] == [
        (Level.ERROR, "red/rank2 loud why=because")
    ]
    log.close()


def test_an_exception_is_told_once_and_its_traceback_line_by_line(tmp_path):
    heard = []
    log = make(tmp_path, on_record=lambda _, line: heard.append(line))
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        log.exception("step_failed", error, batch=3)
    text = lines(log)
    assert text[0].endswith('step_failed batch=3 error="ValueError: two lines"')
    assert len(text) > 3
    assert all(" traceback line=" in line for line in text[1:])
    assert "test_telemetry_logs.py" in "\n".join(text)
    assert len(heard) == 1


def test_pythons_own_logging_comes_as_records(tmp_path):
    log = make(tmp_path)
    logger = logging.getLogger("some.library")
    logger.addHandler(StandardHandler(log))
    logger.propagate = False
    logger.warning("took %d ms", 12)
    logger.warning("wrong %d", "template")
    logger.critical("over")
    try:
        raise OSError("gone")
    except OSError:
        logger.exception("failed")
    text = lines(log)
    assert text[0].endswith('WARNING red/rank2 logged logger=some.library message="took 12 ms"')
    assert text[1].endswith('message="wrong %d"')
    assert " ERROR " in text[2]
    assert any('error="OSError: gone"' in line for line in text)


def test_an_error_fits_on_one_line():
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(KeyError()) == "KeyError"
