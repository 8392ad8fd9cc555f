"""The commands beside train: --help, list, show, sys-info, check, and plug-ins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import commeff
from commeff.cluster import Cluster, names
from commeff.experiments.catalogue.describe import explanation
from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.schema import GROUPS, built_in, node
from commeff.experiments.run.naming import run_id
from tests.owned import run

PLUGIN = '''
from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from commeff import Local, Strategy
from commeff.core.local import OptimizerFactory
from commeff.transforms import Average, Every
from commeff.compressors import Compressor, Dense, Message, WorkerRandom


@dataclass(frozen=True)
class HalfDense(Compressor):
    """C(v) = share v."""

    share: float = 0.5

    scope = "coordinate"

    def compress(self, vectors, random: WorkerRandom) -> Message:
        return Dense().compress(self.share * vectors, random)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        return 1 - (1 - self.share) ** 2


def seldom(optimizer: OptimizerFactory, compressor: Compressor, period: int = 2) -> Strategy:
    """The mean of C(g_i) every `period` steps, g_i otherwise."""
    return Strategy(Local(optimizer), gradients=Every(period, Average(compressor)))
'''


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    return file


def test_help_teaches_and_imports_nothing_slow() -> None:
    slow = "{'torch', 'hydra', 'numpy', 'scipy', 'pandas', 'matplotlib'}"
    script = (
        "import sys\nfrom commeff.experiments.cli import main\nsys.argv = ['commeff', '--help']\n"
        f"try:\n    main()\nfinally:\n    assert not {slow} & set(sys.modules)\n"
    )
    told = run([sys.executable, "-c", script], check=True).stdout
    for command in ("train", "list", "show", "check", "sys-info"):
        assert command in told


def test_help_of_every_command_has_an_example() -> None:
    for command in ("train", "list", "show", "check"):
        assert f"commeff {command}" in invoke(command, "--help").stdout


def test_list() -> None:
    assert json.loads(invoke("list", "--json").stdout).keys() == set(GROUPS)
    for group in GROUPS:
        told = json.loads(invoke("list", group, "--json").stdout)
        assert told
        assert all(told.values()), f"a {group} without a docstring"
    assert "[compressor, topology]" in json.loads(invoke("list", "method", "--json").stdout)["choco"]
    wrong = invoke("list", "methods")
    assert wrong.exit_code == 2
    assert "did you mean method?" in wrong.stderr


def test_show() -> None:
    told = invoke("show", "method=choco", "workers=8").stdout
    assert "workers: 8" in told
    assert "CHOCO-SGD" in told
    assert json.loads(invoke("show", "method=choco", "--json").stdout) == compose(["method=choco"])
    assert invoke("show", "metod=choco").exit_code == 2


def test_a_cluster_is_shown_as_a_file_that_can_be_given_back(tmp_path: Path) -> None:
    assert json.loads(invoke("list", "cluster", "--json").stdout).keys() == {*names()}
    mine = tmp_path / "mine.yaml"
    for name in ("rtx4090_25g", "two_sites", "ethernet_1g"):
        mine.write_text(invoke("show", f"cluster={name}").stdout)
        assert Cluster.load(mine) == Cluster.named(name)
    assert json.loads(invoke("show", f"cluster={mine}", "--json").stdout)["gpu"]["name"] == "CPU worker"
    assert "did you mean two_sites" in invoke("show", "cluster=two_site").stderr
    assert "must stand alone" in invoke("show", "cluster=two_sites", "method=psgd").stderr


def test_show_says_which_gradient_is_clipped() -> None:
    own, averaged = "down to it: each worker's own gradient, before its step.", "what averaging makes of the gradients"
    for method, words in (("local_sgd", own), ("dsgd", own), ("psgd", averaged), ("mem_sgd", averaged)):
        assert words in invoke("show", f"method={method}", "clip=0.5").stdout
    assert (
        f"{averaged}, where the method"
        in invoke("show", "method=dsgd", "topology=torus", "workers=7", "clip=0.5").stdout
    )
    assert "clip: a gradient" not in invoke("show", "method=psgd").stdout


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "method"])
def test_show_teaches_a_part_by_itself(group: str) -> None:
    for name in built_in(group)[:2]:
        config = json.loads(invoke("show", f"{group}={name}", "--json").stdout)
        assert [*config] == [group]
        assert config[group]["_target_"] == node(group, name)["_target_"]
    told = invoke("show", f"{group}={name}").stdout
    text = explanation(config[group]["_target_"], name)
    assert text
    assert text in told
    typo = invoke("show", f"{group}.no_such_key=1")
    assert (typo.exit_code, typo.stdout) == (2, "")


def test_sys_info() -> None:
    assert {"cpu", "cores", "torch", "python", "commit"} <= json.loads(invoke("sys-info", "--json").stdout).keys()


def test_a_plug_in_is_chosen_and_set_like_a_built_in(plugin: Path, tmp_path: Path) -> None:
    tokens = ["task=quadratic", "workers=4", "steps=4", "method=seldom", "method.period=3", "compressor=half_dense"]
    options = ["--plugin", str(plugin), "--json", "--store", str(tmp_path / "store")]
    result = invoke("train", *options, *tokens, "compressor.share=0.25")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["state"] == "done"
    typo = invoke("train", *options, *tokens, "method.perod=3")
    assert typo.exit_code == 2
    assert "did you mean method.period?" in typo.stderr
    wrong = invoke("train", *options, *tokens, "compressor.share=much")
    assert "compressor.share must be a number, got 'much'" in wrong.stderr
    assert "seldom" in json.loads(invoke("list", "--plugin", str(plugin), "--json").stdout)["method"]


def test_the_source_of_a_plug_in_is_part_of_the_run(plugin: Path, tmp_path: Path) -> None:
    """Where the file lies does not matter, what it says does."""
    moved, changed = tmp_path / "elsewhere.py", tmp_path / "changed.py"
    moved.write_text(PLUGIN)
    changed.write_text(PLUGIN.replace("0.5", "0.6"))
    ids = [
        run_id(compose(["method=seldom", "compressor=dense"], choices(str(file)))) for file in (plugin, moved, changed)
    ]
    assert ids[0] == ids[1] != ids[2]


def test_check_runs_the_laws_on_a_plug_in(plugin: Path) -> None:
    told = invoke("check", str(plugin))
    assert told.exit_code == 0, told.output
    assert [line.partition(":")[0] for line in told.stdout.splitlines()] == ["HalfDense", "seldom"]
    plugin.write_text(PLUGIN.replace("1 - (1 - self.share) ** 2", "0.999"))
    fresh = plugin.rename(plugin.with_name("lying.py"))
    broken = invoke("check", f"{fresh}:HalfDense")
    assert broken.exit_code == 1
    assert "BROKEN" in broken.stdout
    assert "did you mean HalfDense?" in invoke("check", f"{plugin.with_name('lying.py')}:HalfDens").stderr


def test_check_takes_parts_of_other_files_and_says_what_a_topology_refuses(plugin: Path, tmp_path: Path) -> None:
    method, few = tmp_path / "often.py", tmp_path / "few.py"
    method.write_text(
        PLUGIN[: PLUGIN.index("@dataclass")] + PLUGIN[PLUGIN.index("def seldom") :].replace("seldom", "often")
    )
    told = invoke("check", str(method), "compressor=half_dense")
    assert (told.exit_code, "no compressor 'half_dense'" in told.stderr) == (2, True)
    told = invoke("check", str(method), "compressor=half_dense", "--plugin", str(plugin))
    assert (told.exit_code, told.stdout.partition(":")[0]) == (0, "often"), told.output
    few.write_text(
        "from commeff.topologies import Topology, ring\n\n\ndef few(n: int) -> Topology:\n"
        '    """A ring of eight."""\n    if n != 8:\n        raise ValueError("only 8")\n    return ring(n)\n'
    )
    told = invoke("check", str(few))
    said = "few: note, accepts all arguments: 7 other sets of arguments are refused, such as few(n=5): only 8"
    assert (told.exit_code, told.stdout.splitlines()[0]) == (0, said)


def test_the_version_is_printed() -> None:
    told = invoke("--version")
    assert (told.exit_code, told.stdout) == (0, f"commeff {commeff.__version__}\n")
