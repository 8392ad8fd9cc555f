"""How commands end: when their output is lost, on terminals that know few signs, when a plug-in ends the process."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from typer import Exit

from commeff.experiments.cli import main
from commeff.experiments.cli.common import complain, format_value, refusals
from commeff.experiments.config.contained import (
    Interrupt,
    ProcessEnding,
    contained,
    end_process,
    interrupt,
)
from commeff.files import appearing
from tests.forks import command
from tests.owned import fork

QUITTERS = """
import os
from commeff.compressors import Dense

CALLS = []


class Own(BaseException):
    pass


class Quitter(Dense):
    def __init__(self, how: str = "exit"):
        super().__init__()
        self.how = how

    def compress(self, vectors, random):
        print("noise")
        CALLS.append(1)
        if len(CALLS) > 5:  # two are of the rehearsal
            if self.how == "leave":
                os._exit(3)
            raise {"exit": SystemExit(0), "interrupt": KeyboardInterrupt(), "own": Own("mine")}[self.how]
        return super().compress(vectors, random)
"""


def ended(words: str, **options: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    process = command(words.split(), **streams)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, out or "", err or ""


def test_output_that_cannot_be_written_is_a_line() -> None:
    with open("/dev/full", "w") as full:
        code, _, err = ended("list", stdout=full)
    assert code == 1
    assert err == "commeff: standard output cannot be written: No space left on device\n"


def test_a_reader_that_has_enough_ends_a_command_in_silence() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, err = ended("show method=choco", stdout=writer, restore_signals=False)
    os.close(writer)
    assert (code, err) == (141, "")


def test_a_line_names_the_file_that_a_full_disk_or_another_file_keeps_from_being(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk says nothing of it."""
    path = tmp_path / "figures"
    with pytest.raises(Exit), refusals(), appearing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    path.write_text("")
    with pytest.raises(Exit), refusals():
        path.mkdir(exist_ok=True)
    full, other = capsys.readouterr().err.splitlines()
    assert full == f"commeff: {path}: cannot be written (No space left on device)"
    assert other == f"commeff: {path}: cannot be written (File exists)"


def test_what_is_printed_is_as_long_as_one_reads(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"no method {'a' * 100_000!r}; `commeff list` names them")
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 2_200
    assert line.startswith("commeff: no method 'aaa")
    assert line.endswith("aaa'; `commeff list` names them")
    assert format_value(3e267) == "3e+267"
    assert (format_value(1234567.0), format_value(12_345), format_value(0.5)) == ("1,234,567", "12,345", "0.5")


def test_lost_complaints_end_nothing() -> None:
    with open("/dev/full", "w") as full:
        assert ended("list nope", stderr=full)[0] == 2
        assert ended("list", stderr=full)[0] == 0


def test_an_ascii_terminal_gets_a_table(tmp_path: Path) -> None:
    run = tmp_path / "é-run"
    run.mkdir()
    (run / "status.json").write_text(json.dumps({"state": "failed", "error": "ρ is not a number", "step": 1}))
    code, out, err = ended(f"status {tmp_path}", env=os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert (code, err) == (0, "")
    assert "1 failed" in out


def test_ctrl_c_ends_an_import_and_says_which(tmp_path: Path) -> None:
    plugin = tmp_path / "endless.py"
    plugin.write_text(
        "import sys, time\nprint('begins', file=sys.stderr, flush=True)\nwhile True:\n    time.sleep(0.1)\n"
    )
    process = command(["list", "--plugin", str(plugin)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "begins\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err == f"commeff: interrupted while importing {plugin}\n"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "SystemExit: 0 (line 23"),
        ("interrupt", "KeyboardInterrupt (line 23"),
        ("own", "Own: mine (line 23"),
        ("leave", "SystemExit: 3 (line 22"),
    ],
)
def test_a_plug_in_that_ends_the_process_is_a_failed_run(
    how: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "quitters.py"
    plugin.write_text(QUITTERS)
    words = f"train --plugin {plugin} --store {tmp_path}/store task=quadratic method=mem_sgd compressor=quitter"
    with pytest.raises(SystemExit) as end:
        main([*words.split(), f"compressor.how={how}", "workers=2", "steps=8"])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line != "noise" and not line.startswith("step ")]
    assert (end.value.code, out, len(lines)) == (1, "", 1)
    assert lines[0].startswith(f"commeff: {reason} of {plugin})")
    (run,) = (tmp_path / "store").glob("mem_sgd-*")
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert reason in status["error"]


def test_in_a_grid_it_fails_alone(tmp_path: Path) -> None:
    plugin, grid, store = tmp_path / "quitters.py", tmp_path / "grid.yaml", tmp_path / "store"
    plugin.write_text(QUITTERS)
    grid.write_text(
        "base: {task: quadratic, workers: 2, steps: 8, method: mem_sgd}\ngrid:\n"
        "  - {compressor: quitter, compressor.how: [exit, interrupt]}\n  - {compressor: top_k}\n"
    )
    code, _, err = ended(f"grid {grid} --plugin {plugin} --store {store} --no-report -j 1")
    states = sorted(json.loads(path.read_text())["state"] for path in store.glob("*/status.json"))
    assert (code, states) == (1, ["done", "failed", "failed"]), err
    assert "SystemExit: 0 (line 23 of" in err
    assert "KeyboardInterrupt (line 23 of" in err


def test_what_a_plug_in_forks_may_leave() -> None:
    with contained():
        child = fork()
        if not child:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(ProcessEnding, match="SystemExit: 4"), contained(), contained():
        os._exit(4)
    assert os._exit.__module__ != contained.__module__


def test_a_thread_that_watches_over_a_process_may_end_it() -> None:
    child = fork()
    if not child:
        with contained():
            watch = threading.Thread(target=lambda: os._exit(5))
            watch.start()
            watch.join()
        os._exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_a_signal_ends_a_process_whatever_runs_there() -> None:
    child = fork()
    if not child:
        with contained():
            signal.signal(signal.SIGTERM, lambda *_: end_process(130))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


def test_a_second_ctrl_c_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(Interrupt):
            interrupt(signal.SIGINT, None)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_finished_run_whose_summary_is_another_file_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "task=quadratic", "task.dimension=2", "workers=2", "steps=1", "--store", str(tmp_path)]
    for code in (0, 2):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == code
        (summary,) = tmp_path.glob("*/summary.json")
        summary.write_text('{"a": 1}')
        _, err = capsys.readouterr()
    folder = summary.parent
    assert err.splitlines()[-1] == (
        f"commeff: {summary} is damaged, though the run is finished; remove {folder} to run it again"
    )
