"""What plan, status and Job are as values: their numbers, their text, and their HTML."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import gpusched
from tests.cli.command import Command

EVIL = '<script>alert(1)</script>"><img src=x onerror=y>'
HARMLESS = {"p", "b", "table", "tr", "th", "td", "ul", "li", "div", "span"}


class Tags(HTMLParser):
    """Collects the tags and the attributes of a document, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def require_harmless(document: str) -> Tags:
    found = Tags(document)
    assert found.tags <= HARMLESS
    assert found.attributes <= {"title", "style"}
    return found


@pytest.mark.usefixtures("command")
def test_the_plan_for_p3_8xlarge_is_the_known_one() -> None:
    plan = gpusched.plan(procs=32, machine="p3.8xlarge")

    assert plan.counts == (3, 10, 10, 10)
    assert [replica.name for replica in plan.replicas][:2] == ["learner.0", "actor.0"]


def test_a_plan_prints_as_the_command_line_prints_it_into_a_pipe(command: Command) -> None:
    plan = gpusched.plan(procs=32, machine="p3.8xlarge")

    printed = command.run("plan", "--procs", "32", "--machine", "p3.8xlarge").stdout

    assert printed == f"{plan}\n" == f"{plan!r}\n"


def without_time(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", text)


def test_a_status_prints_as_the_command_line_prints_it_into_a_pipe(command: Command) -> None:
    printed = command.run("status", "--machine", "2x16GiB").stdout
    found = str(gpusched.status("2x16GiB"))

    assert without_time(printed).splitlines()[:3] == without_time(found).splitlines()[:3]
    assert "16.0 GiB" in printed


def test_a_status_saved_as_json_is_a_machine_to_plan_on(command: Command) -> None:
    saved = command.home / "saved.json"
    saved.write_text(json.dumps(gpusched.status("2x16GiB").document()))

    described, read = (gpusched.plan("snake", procs=2, machine=machine) for machine in ("2x16GiB", str(saved)))
    assert read.counts == described.counts
    assert gpusched.status(str(saved)).inventory.devices == gpusched.status("2x16GiB").inventory.devices


@pytest.mark.usefixtures("command")
def test_the_arguments_are_those_of_the_command_line() -> None:
    small = gpusched.plan(
        procs="max", machine="1x16GiB", learner_memory=4096, actor_memory="2GiB", options={"network": "small"}
    )

    limits = {replica.role: replica.limit_mib for replica in small.replicas}
    assert limits["learner"] >= 4096
    assert limits["actor"] >= 2048
    assert gpusched.plan(procs=2, machine="4x16GiB", gpus="3", policy="pack").replicas[0].device_index == 3


@pytest.mark.usefixtures("command")
def test_a_plan_as_html_is_bars_without_a_script_and_escapes_what_others_named() -> None:
    plan = gpusched.plan(procs=3, machine="2x16GiB")
    hostile = msgspec.structs.replace(
        plan,
        request=msgspec.structs.replace(plan.request, workload=EVIL),
        inventory=msgspec.structs.replace(plan.inventory, host=EVIL),
        devices=tuple(msgspec.structs.replace(one, label=EVIL) for one in plan.devices),
        why=(EVIL,),
        warnings=(EVIL,),
    )

    assert "learner.0" in plan._repr_html_()
    found = require_harmless(hostile._repr_html_())

    assert found.text.count(EVIL) == 4 + len(plan.devices)  # workload, host, why, warning, and each device


def test_a_job_and_a_status_as_html_escape_the_name_the_command_and_the_reason(command: Command) -> None:
    job = gpusched.run(["echo", EVIL], name=EVIL, machine="1x16GiB", hold=True)

    assert EVIL in require_harmless(job._repr_html_()).text
    assert job.id in require_harmless(gpusched.status()._repr_html_()).text
    assert command.state in job.run_dir.parents


@pytest.mark.usefixtures("command")
def test_a_path_is_taken_where_a_workload_or_a_program_is_named(tmp_path: Path) -> None:
    brought = Path(gpusched.__file__).parents[1] / "workloads" / "snake" / "workload.toml"

    job = gpusched.run([Path("/bin/echo"), tmp_path], machine="1x16GiB", hold=True)

    assert job.status().command == ("/bin/echo", str(tmp_path))
    assert gpusched.plan(brought, procs=2, machine="1x16GiB").counts == (3,)
