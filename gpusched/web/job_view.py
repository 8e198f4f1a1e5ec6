"""What the page of one job has of a moment: its state, its processes, its curves, its game, its files."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpusched.api.files import ResultFile, files_in
from gpusched.api.handle import Job, Watch
from gpusched.api.logs import NewLines
from gpusched.api.results import results
from gpusched.api.usage import usage
from gpusched.errors import GpuschedError
from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaStatus, exit_text
from gpusched.render.job_format import network_lines, ready_text
from gpusched.render.usage import usage_table
from gpusched.web.view import job_row

__all__ = ["JobReader", "curves", "members_view", "picture_type", "usage_view"]

_MOST_POINTS: Final = 600
_MOST_NUMBERS: Final = 12
_MOST_NOTES: Final = 20
_FIRST_LINES: Final = 1000
_MOST_OF_LINE: Final = 16_384
_MOST_OF_UNFINISHED: Final = 4096
_FILES_S: Final = 5.0
_MOST_MEMBERS: Final = 200
_SHOWN_ELSEWHERE: Final = ("job", "state", "command")
_PICTURES: Final = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}


class JobReader:
    """Reads the moments of one job's page. Each has the reports since the one before, and what else has changed.

    Its log is read from the last 1,000 lines on; `replica`: that of one process, None: of all.
    """

    def __init__(self, job: Job, replica: str | None) -> None:
        self._job, self._watch = job, Watch(job, frames=True)
        self._log, self._log_over = NewLines(job, replica, _FIRST_LINES), False
        self._log_problem: str | None = None
        self._unfinished: list[str] = []
        self._results: Path | None = None
        self._kept: list[dict[str, object]] = []
        self._files_due = 0.0
        self._seen: dict[str, object] = {}

    def read(self) -> tuple[dict[str, object], bool]:
        """Return what is new, and whether it is the last. Raises NotFound, NoDaemon and HostFault."""
        moment = self._watch.read()
        job = moment.status
        lines = self._lines(job)
        found: dict[str, object] = {
            "job": job_row(job, time.time()) | _details(job),
            "replicas": [_replica(one) for one in job.replicas],
            "frame": moment.frame,
            "files": self._files(job),
            "log_problem": self._log_problem,
        }
        news = {name: value for name, value in found.items() if name not in self._seen or self._seen[name] != value}
        self._seen = found
        if moment.reports:
            news["curves"] = curves(moment.reports)
            news["notes"] = [str(one["note"]) for one in moment.reports if one.get("note")][-_MOST_NOTES:]
        over = job.state in JOB_TERMINAL and not moment.reports and (self._log_over or self._log_problem is not None)
        return news | lines, over  # each reading has a part of many reports, and of a long log

    def _lines(self, job: JobStatus) -> dict[str, object]:
        """Return what is new in the log, and the lines that have no end yet, if something is."""
        if self._log_over:
            return {}
        before, self._log_problem = self._unfinished, None
        try:
            lines, self._log_over = self._log.read(job)
        except GpuschedError as error:  # the rest of the page is not wrong
            lines, self._log_problem = [], f"{error.message}. {error.hint}"
        self._unfinished = [_last_part(line, _MOST_OF_UNFINISHED) for line in self._log.unfinished]
        lines = [_last_part(line, _MOST_OF_LINE) for line in lines]
        return {"lines": lines, "unfinished": self._unfinished} if lines or self._unfinished != before else {}

    def _files(self, job: JobStatus) -> list[dict[str, object]]:
        """Return the files that it has left. While it runs they are read each few seconds: there may be very many."""
        now = time.monotonic()
        if self._results is None:
            self._results = self._job.results
        if job.state in JOB_TERMINAL or now >= self._files_due:
            self._kept = [_file(one) for one in files_in(self._results) if _is_text(one.name)]
            self._files_due = now + _FILES_S
        return self._kept


def members_view(job_id: str) -> dict[str, object]:
    """Return what came of an array's members that have begun, 200 at the most. Raises what results raises."""
    found = results(job_id)
    rows = [
        {"id": one.id, "parameters": one.parameters, "state": one.state, "seconds": one.seconds, "score": one.score}
        for one in found.members[:_MOST_MEMBERS]
    ]
    return {"names": list(found.names), "members": rows}


def usage_view(job_id: str) -> dict[str, object]:
    """Return what a job used beside what it was given, as `gpusched usage` has it; an array in one line for a role.

    Raises what usage raises.
    """
    rows = usage(job_id).rows
    titles, lines, total = usage_table(rows, named=all(row.job == job_id for row in rows))
    shown = [at for at, title in enumerate(titles) if title not in _SHOWN_ELSEWHERE]
    return {
        "titles": [titles[at] for at in shown],
        "lines": [[line[at] for at in shown] for line in lines],
        "total": total,
    }


def curves(reports: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the numbers of reports as columns: `time`, and by name a number or None for each; 600 rows at the most.

    Of more reports each row is the mean of as many that follow each other.
    """
    numbered = [report for report in reports if _is_number(report.get("time"))]
    names = dict.fromkeys(name for report in numbered for name in report if _is_number(report[name]) and name != "time")
    step = max(1, -(-len(numbered) // _MOST_POINTS))
    groups = [numbered[begin : begin + step] for begin in range(0, len(numbered), step)]
    return {
        "time": [_mean(group, "time") for group in groups],
        "numbers": {name: [_mean(group, name) for group in groups] for name in list(names)[:_MOST_NUMBERS]},
    }


def _details(job: JobStatus) -> dict[str, object]:
    return {
        "cwd": job.cwd,
        "run_dir": job.run_dir,
        "message": job.message,
        "note": job.note,
        "ready": ready_text(job),
        "hosts": network_lines(job),
        "attempt": job.attempt,
        "priority": job.priority,
        "limit": job.time_limit_s,
        "after": list(job.after),
        "parameters": job.parameters,
        "held": job.held,
        "is_array": job.array is not None,
    }


def _replica(one: ReplicaStatus) -> dict[str, object]:
    peaks = [use.device_mib for use in one.usage if use.device_mib is not None]
    host = [use.host_mib for use in one.usage if use.host_mib is not None]
    return {
        "name": one.name,
        "state": one.state,
        "device": one.device_index,
        "node": one.node,
        "pid": one.pid,
        "restarts": one.restarts,
        "exit": None if one.exit is None else exit_text(one.exit),
        "warning": one.warning,
        "share": one.all_shares_mib,
        "used": one.used_mib,
        "peak": max(peaks, default=None),
        "host": max(host, default=None),
        "has_log": one.log is not None,
    }


def _file(file: ResultFile) -> dict[str, object]:
    return {
        "name": file.name,
        "bytes": file.bytes,
        "changed": round(file.changed),
        "picture": picture_type(file.name) is not None,
    }


def picture_type(name: str) -> str | None:
    """Return the media type of a file with such a name, None if it is no picture that a browser shows."""
    kind = _PICTURES.get(name.rpartition(".")[2].lower())
    return None if kind is None else f"image/{kind}"


def _is_text(name: str) -> bool:
    """Return whether a name can be sent: one that is not UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _last_part(line: str, most: int) -> str:
    """Return what stands in a line in the end: a progress bar begins again and again at its start. `most` letters."""
    found = line.removesuffix("\r").rpartition("\r")[2]
    return found if len(found) <= most else f"{found[:most]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(group: Sequence[Mapping[str, object]], name: str) -> float | None:
    found = [float(value) for report in group if isinstance(value := report.get(name), int | float)]
    return sum(found) / len(found) if found else None
