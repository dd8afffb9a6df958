"""How a run ended whose port is gone, from what it left in its directory.

What it is: the last document with its `end`, from the summary or else the record.
What it is not: a guess; a launcher that was killed leaves neither.
Who drives it: `feed.live`, where the run's directory is on this machine.
"""

from pydantic import ValidationError

from flodl_core.errors import FlodlError
from flodl_core.ids import ClusterPhase, ExitCode
from flodl_core.telemetry.replay import RecordedRun
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import EndState, StateDocument
from flodl_core.telemetry.summary import RunSummary

GOOD_ENDS = (ExitCode.DONE, ExitCode.STOPPED_SAVED, ExitCode.INTERRUPTED_SAVED)


def last_document(directory: RunDirectory, last: StateDocument | None) -> StateDocument | None:
    """Return the document of a run's end; None where the run left no word of it.

    May block for some seconds on a long record.

    Args:
        directory: of the run, which is not live any more.
        last: the newest document that was read over its port.
    """
    end = _summarized_end(directory)
    if end is not None and last is not None:
        phase = ClusterPhase.DONE if end.exit_code in GOOD_ENDS else ClusterPhase.FAILED
        return last.model_copy(update={"end": end, "phase": phase})
    try:
        recorded = RecordedRun.open(directory.path)
        document = recorded.document_at(recorded.length_s)
    except (FlodlError, OSError):
        return None
    return document if document is not None and document.end is not None else None


def _summarized_end(directory: RunDirectory) -> EndState | None:
    try:
        summary = RunSummary.model_validate_json(directory.summary_path.read_bytes())
    except (OSError, ValidationError):
        return None
    return EndState(exit_code=summary.exit_code, reason=summary.reason, detail=summary.detail)
