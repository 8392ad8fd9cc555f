"""What a user installs: one package, which works beside a project that has folders and files of the same names."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests import owned

ROOT = Path(__file__).parents[1]
SOURCES = ("commeff", "compressors", "topologies", "experiments", "pyproject.toml", "README.md", "LICENSE")
PACKAGED = (".py", ".yaml", ".csv", ".css", ".html", ".js", ".md", ".typed")
SDIST = "from setuptools import build_meta; import sys; print(build_meta.build_sdist(sys.argv[1]))"

# The project of a user: it has modules of the names that commeff's folders have, and a plug-in that imports one.
PROJECT = {
    "compressors.py": "HALF = 0.5\n",
    "topologies.py": "raise RuntimeError('the user has this file, and nobody asked for it')\n",
    "experiments/__init__.py": "raise RuntimeError('the user has this folder, and nobody asked for it')\n",
    "mine.py": """
from commeff import Average, Local, Strategy
from commeff.core.local import OptimizerFactory
from compressors import HALF


def mine(optimizer: OptimizerFactory, share: float = HALF) -> Strategy:
    "Parallel SGD."
    return Strategy(Local(optimizer), gradients=Average())
""",
    "grid.yaml": """
base: {task: quadratic, workers: 4, steps: 4}
grid: [{method: choco, compressor: [top_k, qsgd]}, {method: mine}]
""",
}


@dataclass(frozen=True)
class Installed:
    """A project folder, and the interpreter of an environment in which the wheel is installed."""

    project: Path
    python: Path

    def run(self, *words: str) -> str:
        """What a command prints; it runs in the project, which is also on PYTHONPATH."""
        environment = os.environ | {
            "PYTHONPATH": str(self.project),
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
        }
        return owned.run(words, check=True, cwd=self.project, env=environment).stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, so that building leaves nothing in this one."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, folder / name)
    return folder


def build_wheel(source: Path, target: Path) -> Path:
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    owned.run([sys.executable, "-m", "pip", "wheel", *options, "-w", str(target), str(source)], check=True)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own, which borrows the dependencies of this one."""
    folder, project = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("project")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "-q", "--disable-pip-version-check"]
    owned.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    return Installed(project, python)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(contents(wheel))
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"commeff"}
    folders = ("commeff", "compressors", "topologies", "experiments")
    tracked = {
        (path if path.parts[0] == "commeff" else Path("commeff", path)).as_posix()
        for folder in folders
        for path in (file.relative_to(ROOT) for file in (ROOT / folder).rglob("*"))
        if path.suffix in PACKAGED and not {"__pycache__", "studies"} & {*path.parts}
        if path.parts[0] != "commeff" or len(path.parts) < 3 or path.parts[1] not in folders
    }
    assert tracked - names == set(), "files of the source tree that the wheel lacks"
    assert {"commeff/py.typed", "commeff/experiments/conf/method.yaml"} <= names
    assert not [name for name in names if name.startswith(("commeff/experiments/studies", "docs"))]
    entry = next(text for name, text in contents(wheel).items() if name.endswith("entry_points.txt"))
    assert entry.decode().split() == ["[console_scripts]", "commeff", "=", "commeff.experiments.cli:main"]


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    """Also where links are not kept: the archive holds the folders themselves."""
    done = owned.run([sys.executable, "-c", SDIST, str(tmp_path)], cwd=source)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert contents(build_wheel(unpacked, tmp_path / "again")) == contents(wheel), done.stderr


def test_the_project_s_own_modules_stay_its_own(installed: Installed) -> None:
    code = "import commeff.experiments.cli, compressors; print(commeff.__file__, compressors.__file__)"
    ours, theirs = installed.run(str(installed.python), "-c", code).split()
    assert Path(ours).is_relative_to(installed.python.parents[1])
    assert Path(theirs) == installed.project / "compressors.py"


def test_the_installed_command_trains_reports_and_plans(installed: Installed) -> None:
    for words in (
        ["init", "-q"],
        ["add", "mine.py"],
        ["-c", "user.name=me", "-c", "user.email=me@x", "commit", "-qm", "1"],
    ):
        installed.run("git", *words)
    installed.run("commeff", "grid", "grid.yaml", "--plugin", "mine.py", "--store", "store", "-j", "2")
    states = json.loads(installed.run("commeff", "status", "store", "--json"))["grid"]["states"]
    assert states == {"done": 3}
    page = (installed.project / "store" / "report" / "report.html").read_text()
    commit = installed.run("git", "rev-parse", "--short=10", "HEAD").strip()
    assert re.search(rf"mine.py of {installed.project.name} at {commit}, digest [0-9a-f]{{12}}", page)
    (environment, *_) = (path.read_text() for path in (installed.project / "store").glob("*/env.json"))
    assert json.loads(environment)["commit"] == "unknown", "the project's commit is not ours"

    plan = ["model=llama2-7b", "cluster=h100_400g", "gpus=64"]
    assert json.loads(installed.run("commeff", "plan", "--json", *plan))


@pytest.mark.parametrize("words", ["lab bench", "bench step"])
def test_a_command_that_the_wheel_does_not_hold_says_so(words: str, installed: Installed) -> None:
    command, environment = [str(installed.python), "-m", "commeff"], os.environ | {"PYTHONPATH": str(installed.project)}
    done = owned.run([*command, *words.split()], cwd=installed.project, env=environment)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "commeff: this command runs from a checkout of commeff's repository: the installed package does not hold it"
    ]


@pytest.mark.slow
def test_every_command_of_the_installed_package_works_by_itself(installed: Installed) -> None:
    small = ["task=quadratic", "workers=4", "steps=4", "method=choco", "compressor=top_k", "--store", "alone"]
    assert json.loads(installed.run("commeff", "train", "--json", *small))["state"] == "done"
    installed.run("commeff", "report", "alone")
    assert "choco" in (installed.project / "alone" / "report" / "report.html").read_text()


@pytest.mark.slow
def test_torchrun_starts_the_installed_package(installed: Installed) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}", "-m", "commeff"]
    words = ["train", "--json", "task=quadratic", "workers=4", "steps=4", "--plugin", "mine.py", "method=mine"]
    summary = json.loads(installed.run(str(installed.python), *launch, *words, "--store", "launched"))
    assert (summary["state"], summary["steps"]) == ("done", 4)
    environment = json.loads((installed.project / summary["run"] / "env.json").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (environment["world_size"], environment["commeff"]) == (2, version)
