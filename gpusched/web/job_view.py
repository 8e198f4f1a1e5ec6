"""What the page of one job has of a moment: its state, its processes, its curves, its game, its files."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from gpusched.api.files import ResultFile
from gpusched.api.handle import Job, Watch
from gpusched.api.logs import NewLines
from gpusched.api.results import results
from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaStatus, exit_text
from gpusched.render.job_format import network_lines, ready_text
from gpusched.web.view import job_row

__all__ = ["JobReader", "LogReader", "curves", "members_view"]

_MOST_POINTS: Final = 600
_MOST_NUMBERS: Final = 12
_MOST_NOTES: Final = 20
_FIRST_LINES: Final = 1000
_MOST_MEMBERS: Final = 200
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class JobReader:
    """Reads the moments of one job's page. Each has the reports since the one before, and what else has changed."""

    def __init__(self, job: Job) -> None:
        self._job, self._watch = job, Watch(job, frames=True)
        self._seen: dict[str, object] = {}

    def read(self) -> tuple[dict[str, object], bool]:
        """Return what is new, and whether the job has ended. Raises NotFound, NoDaemon and HostFault."""
        moment = self._watch.read()
        job = moment.status
        found: dict[str, object] = {
            "job": job_row(job, time.time()) | _details(job),
            "replicas": [_replica(one) for one in job.replicas],
            "frame": moment.frame,
            "files": [_file(one) for one in self._job.files()],
        }
        news = {name: value for name, value in found.items() if name not in self._seen or self._seen[name] != value}
        self._seen = found
        if moment.reports:
            news["curves"] = curves(moment.reports)
            news["notes"] = [str(one["note"]) for one in moment.reports if one.get("note")][-_MOST_NOTES:]
        return news, job.state in JOB_TERMINAL and not moment.reports  # each reading has a part of many reports


def members_view(job_id: str) -> dict[str, object]:
    """Return what came of an array's members that have begun, 200 at the most. Raises what results raises."""
    found = results(job_id)
    rows = [
        {"id": one.id, "parameters": one.parameters, "state": one.state, "seconds": one.seconds, "score": one.score}
        for one in found.members[:_MOST_MEMBERS]
    ]
    return {"names": list(found.names), "members": rows}


class LogReader:
    """Reads what the processes of a job write, from the last 1,000 lines on; `replica`: one of them, None: all."""

    def __init__(self, job: Job, replica: str | None) -> None:
        self._new = NewLines(job, replica, _FIRST_LINES)
        self._unfinished: list[str] = []

    def read(self) -> tuple[dict[str, object], bool]:
        """Return what is new, and whether it is the last. Raises NotFound, NoDaemon and HostFault."""
        lines, over = self._new.read()
        changed = lines or self._unfinished != self._new.unfinished
        self._unfinished = self._new.unfinished
        return ({"lines": lines, "unfinished": self._unfinished} if changed else {}), over


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
        "since": round(one.since),
        "exit": None if one.exit is None else exit_text(one.exit),
        "warning": one.warning,
        "share": one.share_mib + sum(share.share_mib for share in one.further),
        "used": one.used_mib,
        "peak": max(peaks, default=None),
        "host": max(host, default=None),
        "cpu": one.usage[-1].cpu_s if one.usage else None,
        "has_log": one.log is not None,
    }


def _file(file: ResultFile) -> dict[str, object]:
    picture = file.name.lower().endswith(_PICTURES)
    return {"name": file.name, "bytes": file.bytes, "changed": round(file.changed), "picture": picture}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(group: Sequence[Mapping[str, object]], name: str) -> float | None:
    found = [float(value) for report in group if isinstance(value := report.get(name), int | float)]
    return sum(found) / len(found) if found else None
