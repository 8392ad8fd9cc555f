"""The code of a plug-in: files beside it can be imported, and count for what its runs are called."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.config.loading import helpers
from commeff.experiments.config.plugins import choices
from commeff.experiments.run.naming import run_id
from tests.owned import run

PLUGIN = """from commeff import Local, Strategy
from commeff.core.local import OptimizerFactory
from commeff.transforms import Average, Every
from {name}_bits import STEPS

def {name}(optimizer: OptimizerFactory) -> Strategy:
    import {name}_kit.inner
    return Strategy(Local(optimizer), parameters=Every({name}_kit.inner.same(STEPS), Average()))
"""


def write(folder: Path, name: str) -> Path:
    """A plug-in that imports a file beside it, and a module of a package when it is called."""
    (folder / f"{name}_kit").mkdir(parents=True)
    (folder / f"{name}_bits.py").write_text("STEPS = 3\n")
    (folder / f"{name}_kit" / "__init__.py").write_text("")
    (folder / f"{name}_kit" / "inner.py").write_text("from .deep import ONE\ndef same(x): return x * ONE\n")
    (folder / f"{name}_kit" / "deep.py").write_text("ONE = 1\n")
    (folder / "unrelated.py").write_text("raise RuntimeError\n")
    file = folder / "plugin.py"
    file.write_text(PLUGIN.format(name=name))
    return file


def named(file: Path, name: str) -> str:
    return run_id(compose([f"method={name}", "task=quadratic", "workers=4"], choices(str(file))))


def test_helpers_are_the_files_beside_a_plug_in_that_it_reaches(tmp_path: Path) -> None:
    file = write(tmp_path, "reach")
    assert sorted(helpers(file)) == ["reach_bits", "reach_kit", "reach_kit.deep", "reach_kit.inner"]
    for ours in ("commeff", "random"):
        (tmp_path / f"{ours}.py").write_text("")
    file.write_text("import commeff, random, reach_bits, plugin, numpy\n")
    assert sorted(helpers(file)) == ["reach_bits"], "our packages and the standard library are no helpers"
    (tmp_path / "reach_bits.py").write_text("x = (")
    assert sorted(helpers(file)) == ["reach_bits"], "what cannot be read has no imports"


def test_what_is_installed_side_by_side_does_not_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    assert helpers(write(folder, "installed")) == {}


@pytest.mark.parametrize("changed", ["{}_bits.py", "{}_kit/inner.py", "{}_kit/deep.py", "{}_kit/__init__.py"])
def test_a_run_is_another_run_when_a_file_changes_that_its_plug_in_imports(changed: str, tmp_path: Path) -> None:
    name = "run" + changed.strip("{}_").replace("/", "_").removesuffix(".py")
    file = write(tmp_path, name)
    before = named(file, name)
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    assert named(file, name) == before
    with (tmp_path / changed.format(name)).open("a") as helper:
        helper.write("\n# other\n")
    assert named(file, name) != before


def test_a_plug_in_without_helpers_is_called_what_it_was(tmp_path: Path) -> None:
    """The digest of one file is that of its bytes alone, so that runs of before are found."""
    import hashlib

    from commeff.experiments.config.loading import source_digest

    file = tmp_path / "alone.py"
    file.write_text("from commeff import Strategy\n\ndef alone(optimizer) -> Strategy: ...\n")
    assert choices(str(file))
    assert source_digest(f"{file}:alone") == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_moved_plug_in_with_its_helpers_is_the_same_run(tmp_path: Path) -> None:
    """In a process of its own: one process has one module of a name."""
    file = write(tmp_path / "here", "moved")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    code = (
        "import sys; from commeff.experiments.run.naming import run_id; "
        "from commeff.experiments.config.compose import compose; "
        "from commeff.experiments.config.plugins import choices; "
        "print(run_id(compose(['method=moved', 'task=quadratic', 'workers=4'], choices(sys.argv[1]))))"
    )
    told = run([sys.executable, "-c", code, str(tmp_path / "there" / "plugin.py")], check=True)
    assert told.stdout.strip() == named(file, "moved")


def test_a_helper_that_another_file_stands_in_for_is_refused(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", "twin"), write(tmp_path / "second", "twin")
    assert choices(str(first))
    with pytest.raises(ValueError, match=r"imports twin_bits and gets \S+first/twin_bits.py, not the file beside it"):
        choices(str(second))
    for place in ("third", "fourth"):
        write(tmp_path / place, "late").write_text(
            f"from commeff import Strategy\n\ndef {place}(optimizer) -> Strategy:\n    import late_bits\n"
        )
    assert choices(str(tmp_path / "third" / "plugin.py"))
    with pytest.raises(ValueError, match=r"gets \S+third/late_bits.py"):  # when it is called, were it not refused
        choices(str(tmp_path / "fourth" / "plugin.py"))


def test_an_error_in_a_helper_names_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "broken")
    (tmp_path / "broken_bits.py").write_text("\n\nraise KeyError('bits')\n")
    with pytest.raises(ValueError, match=r"KeyError: 'bits' \(line 3 of \S+broken_bits.py\)$"):
        choices(str(file))


def test_an_error_while_a_plug_in_is_built_names_its_line(tmp_path: Path) -> None:
    from commeff.experiments.config.build import build

    file = tmp_path / "built.py"
    file.write_text(
        "from commeff import Strategy\n\n"
        "def wrong_name(optimizer) -> Strategy:\n    return Stratgy(optimizer)\n\n"
        "def wrong_type(optimizer) -> Strategy:\n    return None + 1\n"
    )
    for name, line in (("wrong_name", 4), ("wrong_type", 7)):
        with pytest.raises(ValueError, match=rf"\(line {line} of \S+built.py\)$"):
            build(compose([f"method={name}", "task=quadratic", "workers=4"], choices(str(file))))


def test_a_plug_in_that_is_neither_a_file_nor_installed_is_told_what_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a plug-in is a file that ends in \.py"):
        choices("no_such_module_anywhere")
