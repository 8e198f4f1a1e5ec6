"""Jobs as the daemon keeps them: plain ones, and any that can be."""

from hypothesis import strategies as st

from gpusched.model.job import CommandRequest, ProcessIdentity, Submission
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.status import JOB_TERMINAL, ExitReason, JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.model.workload import Memory, Restart, Role, Workload
from gpusched.storage.job import Job

SECRET = "squeamish-ossifrage"


def submission(**environ: str) -> Submission:
    role = Role(name="command", command=("sleep", "600"), restart=Restart(policy="never"))
    return Submission(
        workload=Workload(name="run", roles=(role,), leader="command"),
        command=CommandRequest(fraction=4000),
        cwd="/home/ada",
        environ=environ,
        python="{python}",
        xla_variable="XLA_CLIENT_MEM_FRACTION",
    )


def queued(number: int, workload: str = "run", **environ: str) -> Job:
    name = f"{workload}-{number}"
    return Job(id=name, run_dir=f"/s/jobs/{name}", created=float(number), submission=submission(**environ))


def ended(number: int, replicas: int = 1) -> Job:
    """A job that succeeded, with as many replicas; it ended `number` seconds after the others began."""
    name = f"run-{number}"
    last = JobStatus(
        id=name,
        workload="run",
        state=JobState.SUCCEEDED,
        counts=(replicas,),
        run_dir=f"/s/jobs/{name}",
        replicas=tuple(
            ReplicaStatus(
                name=f"actor.{rank}",
                role="actor",
                state=ReplicaState.EXITED,
                device_uuid=f"GPU-{rank % 4:032x}",
                limit_mib=1100,
                share_mib=1550,
                exit=ExitReason(kind="completed"),
                log=f"/s/jobs/{name}/logs/actor.{rank}.log",
            )
            for rank in range(replicas)
        ),
    )
    return Job(
        id=name,
        run_dir=f"/s/jobs/{name}",
        created=float(number),
        submission=submission(TOKEN=SECRET),
        state=JobState.SUCCEEDED,
        ended=1_000_000.0 + number,
        last=last,
    )


_words = st.text(max_size=20)
_moments = st.floats(min_value=0, max_value=1e12)
_memory = st.builds(Memory, min_mib=st.integers(1, 1 << 40), share=st.none() | st.integers(1, 10_000))
_roles = st.builds(
    Role,
    name=_words,
    command=st.lists(_words, min_size=1, max_size=3).map(tuple),
    count=st.integers(0, 1000),
    memory=st.none() | _memory,
    threads=st.none() | st.integers(1, 64),
)
_requests = st.builds(
    Request,
    workload=_words,
    roles=st.lists(
        st.builds(RoleRequest, name=_words, count=st.integers(0, 1000), memory=st.none() | _memory), max_size=2
    ).map(tuple),
)
_submissions = st.builds(
    Submission,
    workload=st.builds(
        Workload, name=_words, roles=st.lists(_roles, max_size=2).map(tuple), stop_grace_s=st.floats(0, 100)
    ),
    request=st.none() | _requests,
    command=st.none() | st.builds(CommandRequest, devices=st.none() | st.integers(0, 1024)),
    options=st.binary(max_size=20),
    cwd=_words,
    environ=st.dictionaries(_words, _words, max_size=4),
    python=_words,
    xla_variable=_words,
    name=st.none() | _words,
    priority=st.integers(-1_000_000, 1_000_000),
    after=st.lists(_words, max_size=2).map(tuple),
    at=st.none() | _moments,
    time_limit_s=st.none() | st.floats(min_value=0.1, max_value=1e9),
    launcher=st.none() | st.builds(ProcessIdentity, pid=st.integers(1, 1 << 31), start=st.integers(0, 1 << 62)),
    requeue=st.booleans(),
)
_last = st.builds(
    JobStatus,
    id=_words,
    workload=_words,
    state=st.sampled_from(sorted(JOB_TERMINAL)),
    counts=st.lists(st.integers(0, 100), max_size=4).map(tuple),
    replicas=st.lists(
        st.builds(
            ReplicaStatus,
            name=_words,
            role=_words,
            pid=st.none() | st.integers(1, 1 << 31),
            exit=st.none() | st.builds(ExitReason, kind=st.just("crashed"), code=st.integers(1, 255)),
        ),
        max_size=2,
    ).map(tuple),
    run_dir=_words,
    progress=st.none() | st.dictionaries(_words, st.integers(-(1 << 63), (1 << 64) - 1) | _words, max_size=3),
)
any_job = st.builds(
    Job,
    id=st.text(min_size=1, max_size=20),
    run_dir=_words,
    created=_moments,
    submission=st.none() | _submissions,
    state=st.sampled_from(JobState),
    held=st.booleans(),
    stop_asked=st.booleans(),
    attempt=st.integers(0, 1000),
    started=st.none() | _moments,
    ended=st.none() | _moments,
    message=st.none() | _words,
    last=st.none() | _last,
)
