"""Plug-ins of every kind: from files and installed packages, chosen like built-ins, and what `commeff check` says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from commeff.experiments.cli import app
from commeff.experiments.config.build import build
from commeff.experiments.config.check import check_plugin
from commeff.experiments.config.compose import compose
from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.plugins import adopt, choices

PLUGINS = Path(__file__).parents[2] / "plugins"
GOOD = {
    "bf16": "compressor",
    "mean_sign": "compressor",
    "chords": "topology",
    "moons": "task",
    "slope": "task",
    "random_share": "method",
    "server_momentum": "method",
}

WRONG = {  # what is wrong: the law that says so, and what must be in the sentence
    "compressors": {
        "Biased": ("unbiased", r"off by 0\.27 \(allowed .*yet omega is 0\.5.*return None from omega"),
        "LiesAboutRowBytes": ("wire", r"says \[5, 5, 5\], but \[320, 320, 320\] bytes are sent: do not override"),
        "LiesAboutWireBytes": ("wire", r"says \[0, 0, 0\], but \[320, 320, 320\] bytes are sent"),
        "HidesItsScale": ("wire", r"'scale' of _Secret depends on the vectors but is not in parts"),
        "UnpackedSigns": (
            "wire",
            r"part 0 is not packed: 40 numbers .* in 40 bytes and fit into 5: use compressors\.pack",
        ),
        "CountsCalls": ("pure", r"changes the compressor: calls was \S+, is \S+; a compressor keeps nothing"),
        "RemembersInAList": ("pure", r"twice gives two messages: RemembersInAList\.seen was .*keep nothing"),
        "RemembersInTheModule": ("pure", r"twice gives two messages: the module's _CALLS was"),
        "KeepsItsFirstMask": ("history", r"depends on what was compressed before"),
        "LeaksRows": ("rows independent", r"depends on the rows beside them .*moves by \d.*reduce over dim=1"),
        "ClaimsTooMuch": ("error", r"= 0\.6\d* .*above 1 - delta = 0\.1: delta can be 0\.39\d* at most"),
        "FitsOneWidth": ("error", r"= 0\.999 .* one-hot vector in 1000 dimensions.*delta can be 0\.001 at most"),
        "DrawsGlobally": ("pure", r"global generator of torch.*draw from the WorkerRandom"),
        "NeedsTheWhole": ("scope", r"columns 0 to 3 .* scope is 'coordinate'.*say scope = 'whole'"),
        "NoDataclass": ("form", r"make it @dataclass\(frozen=True\)"),
        "NotFrozen": ("form", r"can be changed: make it @dataclass\(frozen=True\)"),
        "Undecorated": ("form", r"annotates share but is no dataclass"),
        "HasNoSamples": ("form", r"needs kept.*def samples\(cls\): return \[cls\(kept=\.\.\.\)\]"),
        "BreaksBeyondItsDefault": ("error", r"ItsDefault\(kept=1\): .*\(and 1 more of its 3 configurations"),
        "BreaksAsItsShareGrows": ("error", r"Grows\(share=0.55\): .* above 1 - delta = 0.45"),
        "SumsTogether": ("rows independent", r"moves by \d.*e-1\d\): it sums in another order, as a matrix product"),
        "HoldsAList": ("form", r"its levels is a list.*make it a tuple"),
        "ReturnsATensor": ("form", r"compress returns a Tensor: return a Message"),
    },
    "methods": {
        "writes_into_its_input": ("leaves its input alone", r"step 0 wrote into the gradient of step 0: .* a copy"),
        "keeps_undeclared_memory": (
            "resumes",
            r"differs at step 1 by .*write rows = \('last', 'velocity'\) in class _Remembers",
        ),
        "shares_what_each_worker_has": (
            "resumes on other processes",
            r"saved by 2 processes and loaded by 4, it fails .*: name what has a row for each hosted worker in `rows`",
        ),
        "looks_at_who_is_here": ("is the same on every engine", r"on 2 processes of 2 workers.* from step 0 on, by \d"),
        "averages_for_free": ("pays for what it learns", r"step 0 before any byte was sent"),
        "draws_globally": ("repeats", r"torch's global generator.*communicator\.random"),
        "speaks_on_one_process": ("is the same on every engine", r"process 0 waits for all_reduce from process 1"),
        "keeps_a_list": (
            "does not grow",
            r"after 160 steps .* after 480 steps .*: what is remembered must have a size",
        ),
        "feeds_large_errors_back": (
            "does not grow",
            r"feeds_large_errors_back\(RandomK\): after 24 steps on a mild quadratic x has grown to .*contractive\(C\)",
        ),
        "says_that_rows_agree": (
            "agrees where it says so",
            r"x is equal at all workers after step 0, where workers differ by \d.*drop Traits\(agrees=True\)",
        ),
        "says_that_its_memory_is_common": (
            "agrees where it says so",
            r"parameters/last is equal at all workers after step 0, .*leave it out of Traits\(common=\)",
        ),
        "makes_much_of_roundings": (
            "is the same on every engine",
            r"from step 0 on.*: sums in another order: 1e-15 more",
        ),
        "breaks_beyond_its_default": (
            "leaves its input alone",
            r"breaks_beyond_its_default\(method\.share=0\.5\): step 0 wrote into the gradient",
        ),
        "needs_a_secret": ("form", r"must have defaults for secret, got none: the laws know values for optimizer"),
        "forgets_to_start_its_parts": (
            "form",
            r"_Unstarted\.start has not started inner \(Average\): let it begin with super\(\)\.start",
        ),
        "returns_nothing": ("form", r"gives a NoneType: return Strategy"),
    },
    "topologies": {
        "sums_to_more": ("gives mixing matrices", r"must sum to 1, got neither: .*; divide each row"),
        "sums_by_columns": ("keeps agreement", r"row 0 of step 0 sums to 4\.5, not 1"),
        "counts_calls": ("is a pure function of the step", r"another matrix when it is asked again"),
        "draws_globally": ("is a pure function of the step", r"global generator.*default_rng\(\(seed, step\)\)"),
        "lies_about_its_period": ("has an honest period", r"steps 0 and 0 \+ 1 differ, but period = 1"),
        "two_islands": ("agrees in the end", r"\[0, 2, 4, 6\] and \[1, 3, 5, 7\] do not all reach each other"),
        "goes_round": ("agrees in the end", r"weights go round and never mix"),
        "another_size": ("gives mixing matrices", r"n must be 8, got 4"),
        "says_it_is_symmetric": ("describes its weights", r"symmetric is True, but the weights say False"),
        "says_it_is_fast": ("has the norm for rho", r"rho is 0 and \|W - J\| = 0\.8047"),
        "hides_its_shifts": ("tells circulants from others", r"shifts is None, but the weights say \{0: 0\.33"),
    },
    "tasks": {
        "DrawsForWhoIsHere": ("draws each worker alone", r"worker 2's minibatch at step 0 depends on who is hosted"),
        "CountsItsBatches": ("draws batches by the step", r"batch\(2\) asked again is another"),
        "UnseededModel": ("starts from one model", r"differs in \['x'\]: seed its initialisation"),
        "LossForEachSample": ("has a loss", r"loss\(\) has shape \(1,\): return the mean"),
        "DetachedLoss": ("has a loss", r"no gradient"),
        "EvaluatesToNothing": ("evaluates", r"train_loss is missing"),
        "ForgetsItsWorkers": ("has what a run asks for", r"self\.workers is 3: set it to the 4"),
        "Unfinished": ("form", r"lacks evaluate, test, calibration"),
    },
}

UNUSABLE = {  # the text of a plug-in, and what the one line must say
    "x = (": "cannot be loaded: SyntaxError",
    "": "adds nothing: write a subclass of Compressor",
    "def mine(optimizer): ...": "the function mine does not say what it returns: annotate it -> Strategy",
    "from commeff.compressors import Compressor\nclass Mine(Compressor): scope = 'whole'": (
        "Mine lacks compress, delta, omega"
    ),
    "from commeff.topologies import Topology\nclass Mine(Topology): ...": "Mine is a topology: write a function",
}


ROUNDS = """
from commeff import Local, Strategy, Transform
from commeff.compressors import Dense
from commeff.core import Timetable

def rounds(optimizer) -> Strategy:
    return Strategy(Local(optimizer), parameters=Rounds())

class Rounds(Transform):
    def __call__(self, x, communicator):
        if communicator.step % 3 != 2:
            return x
        return communicator.average(Dense().compress(x, communicator.random("x")))
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def verdicts():
    return {kind: check_plugin(str(PLUGINS / "wrong" / f"{kind}.py")) for kind in WRONG}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in WRONG.items() for name in names])
def test_a_wrong_plug_in_is_told_what_is_wrong(verdicts, kind: str, name: str) -> None:
    law, sentence = WRONG[kind][name]
    said = {
        verdict.law: verdict.sentence
        for verdict in verdicts[kind]
        if verdict.name == name and verdict.state == "broken"
    }
    assert law in said, said
    assert re.search(sentence, said[law]), said[law]
    assert "\n" not in said[law]
    assert name in said[law]


def test_every_wrong_plug_in_is_listed_here(verdicts) -> None:
    for kind, found in verdicts.items():
        assert {verdict.name for verdict in found} - {"WrongTwice"} == set(WRONG[kind])


def test_a_memory_that_other_processes_misread_is_not_blamed_on_absent_workers(verdicts) -> None:
    of = {v.law: v.state for v in verdicts["methods"] if v.name == "shares_what_each_worker_has"}
    assert of["resumes on other processes"] == "broken"
    assert of["leaves the absent alone"] == "waits"


def test_all_broken_laws_are_said_and_consequences_are_not(verdicts) -> None:
    of = {name: [v for v in verdicts["compressors"] if v.name == name] for name in ("WrongTwice", "DrawsGlobally")}
    assert [v.law for v in of["WrongTwice"] if v.state == "broken"] == ["unbiased", "scope"]
    assert [v.law for v in of["DrawsGlobally"] if v.state == "broken"] == ["pure"]
    waiting = {v.law for v in of["DrawsGlobally"] if v.state == "waits"}
    assert "rows independent" in waiting, "it would blame the rows for what the generator does"
    broken_form = [v for v in verdicts["compressors"] if v.name == "NotFrozen"]
    assert [v.law for v in broken_form if v.state == "broken"] == ["form"]
    assert {v.state for v in broken_form} == {"broken", "waits"}
    assert {len([v for v in verdicts["compressors"] if v.name == name]) for name in WRONG["compressors"]} == {16}


@pytest.mark.parametrize("name", GOOD)
def test_good_plug_ins_keep_every_law(name: str) -> None:
    told = invoke("check", str(PLUGINS / f"{name}.py"))
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) == 1
    assert choices(str(PLUGINS / f"{name}.py"))[0].group == GOOD[name]


def test_exit_codes_and_json(tmp_path: Path) -> None:
    wrong = PLUGINS / "wrong" / "topologies.py"
    told = invoke("check", f"{wrong}:two_islands")
    assert told.exit_code == 1
    assert told.stdout.splitlines()[0].startswith("two_islands: BROKEN agrees in the end: two_islands(n=8): after")
    rows = json.loads(invoke("check", f"{wrong}:two_islands", "--json").stdout)
    assert {row["state"] for row in rows} == {"holds", "broken"}
    assert {row["kind"] for row in rows} == {"topology"}
    for number, (text, reason) in enumerate(UNUSABLE.items()):
        file = tmp_path / f"plugin{number}.py"
        file.write_text(text)
        refused = invoke("check", str(file))
        assert refused.exit_code == 2
        assert reason in refused.stderr
        assert "Traceback" not in refused.output
    assert invoke("check", str(tmp_path / "nowhere.py")).exit_code == 2


def test_a_timetable_that_is_missing_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "rounds.py"
    file.write_text(ROUNDS)
    told = invoke("check", str(file))
    assert told.exit_code == 0, told.output
    assert "note, has an exact profile: rounds(): no period in `timetable` of Rounds, whose steps" in told.stdout
    assert "are not all alike: bytes are means over 64 steps" in told.stdout
    better = tmp_path / "timed_rounds.py"
    better.write_text(ROUNDS + "\n    def timetable(self):\n        return Timetable(period=3)\n")
    assert "note" not in invoke("check", str(better)).stdout


def test_an_error_in_the_reader_s_code_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "crash.py"
    source = (PLUGINS / "bf16.py").read_text().replace('return Dense("bfloat16")', 'return 1 / 0 or Dense("bfloat16")')
    file.write_text(source)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "1 / 0" in text)
    told = invoke("check", str(file))
    assert told.exit_code == 1
    assert f"ZeroDivisionError: division by zero (line {line} of {file}, with vectors of (" in told.stdout
    assert told.stdout.count("BROKEN") == 1


def test_what_a_plug_in_may_do_without_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "numbers.py"
    source = (PLUGINS / "bf16.py").read_text()
    file.write_text(source.replace('return Dense("bfloat16")', 'return [vectors.tolist()] and Dense("bfloat16")'))
    told = invoke("check", str(file))
    assert told.exit_code == 0, told.output
    assert "note, size without numbers: " in told.stdout
    assert "it does not work on meta tensors" in told.stdout


def test_a_plug_in_of_every_kind_in_one_run(tmp_path: Path) -> None:
    options = [word for name in ("moons", "mean_sign", "chords") for word in ("--plugin", str(PLUGINS / f"{name}.py"))]
    tokens = ["task=moons", "task.hidden=4", "method=choco", "compressor=mean_sign", "topology=chords", "workers=4"]
    told = invoke("train", *options, *tokens, "steps=3", "--store", str(tmp_path), "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["state"] == "done"
    assert "moons" in json.loads(invoke("list", *options, "task", "--json").stdout)
    assert "task.hidden must be a whole number" in invoke("train", *options, *tokens, "task.hidden=x").stderr


def test_a_part_within_a_plug_in_is_chosen_like_a_part(tmp_path: Path) -> None:
    file = tmp_path / "nested.py"
    file.write_text(
        "from commeff import Local, Strategy\n"
        "from commeff.transforms import ThroughServer\n"
        "from commeff.core.local import OptimizerFactory\n"
        "from commeff.compressors import Compressor\n"
        "def two_ways(optimizer: OptimizerFactory, up: Compressor, down: Compressor) -> Strategy:\n"
        "    return Strategy(Local(optimizer), gradients=ThroughServer(up, down))\n"
    )
    tokens = ["task=quadratic", "workers=4", "method=two_ways", "method.up=qsgd", "method.up.levels=3", "bucket_mb=0"]
    config = compose(tokens, choices(str(file)))
    assert config["method"]["up"]["levels"] == 3
    assert config["method"]["down"]["_target_"] == "commeff.compressors.TopK"
    assert build(config).strategy.gradients.up.compressor.levels == 3


def test_a_second_optimizer_of_a_plug_in_is_chosen_like_a_second_compressor(tmp_path: Path) -> None:
    file = tmp_path / "outer.py"
    file.write_text(
        "from commeff import Average, Local, Outer, Strategy\n"
        "from commeff.core.local import OptimizerFactory\n"
        "def moved(optimizer: OptimizerFactory, outer: OptimizerFactory) -> Strategy:\n"
        "    return Strategy(Local(optimizer), parameters=Outer(Local(outer), Average()))\n"
    )
    tokens = ["task=quadratic", "workers=4", "method=moved", "method.outer=adam", "method.outer.lr=0.5"]
    strategy = build(compose(tokens, choices(str(file)))).strategy
    assert strategy.parameters.outer.lr == 0.5
    assert compose(tokens[:3], choices(str(file)))["method"]["outer"]["_target_"] == "torch.optim.SGD"
    assert invoke("check", str(file)).exit_code == 0


def test_settings_of_check_are_tried_alone() -> None:
    method, compressor = (
        f"{PLUGINS}/wrong/{name}" for name in ("methods.py:breaks_beyond_its_default", "compressors.py")
    )
    assert invoke("check", method).exit_code == 1
    assert invoke("check", method, "optimizer=adam").exit_code == 0
    assert invoke("check", method, "method.outer=adam", "method.share=1").exit_code == 0
    told = invoke("check", f"{compressor}:BreaksBeyondItsDefault", "task.hidden=3")
    assert "'task.hidden=3' sets nothing: what is checked is a compressor" in told.stderr
    told = invoke("check", f"{compressor}:BreaksBeyondItsDefault", "compressor.kept=41")
    assert "BROKEN error" not in told.stdout
    for word, reason in (
        ("method.shre=1", "did you mean method.share"),
        ("topology=ring", "method breaks_beyond_its_default takes no topology"),
        ("method=psgd", "'method=psgd' names another method: what is checked is breaks_beyond_its_default"),
    ):
        told = invoke("check", method, word)
        assert (told.exit_code, reason in told.stderr) == (2, True), told.stderr


def install(folder: Path, distribution: str, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it: its module, and metadata with an entry point."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"from {name}.inner import *\n")
    (folder / name / "inner.py").write_text(source)
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[commeff.plugins]\n{name} = {name}\n")
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))


def test_installed_plug_ins_are_found_and_broken_ones_do_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    athens = (PLUGINS / "random_share.py").read_text().replace("def random_share", "def athens")
    install(tmp_path / "a", "greeks", "greek_methods", athens, monkeypatch)
    install(tmp_path / "b", "ruins", "ruined_methods", "raise OSError('rubble')", monkeypatch)
    install(tmp_path / "c", "thieves", "stolen_methods", athens.replace("athens", "psgd"), monkeypatch)
    found, complaints = adopt([])
    assert [(choice.group, choice.name) for choice in found] == [("method", "athens")]
    assert found[0].node["_target_"] == "greek_methods.athens"
    assert len(complaints) == 2
    assert "'ruined_methods' of ruins is left out" in complaints[0]
    assert "OSError: rubble" in complaints[0]
    assert "hides the built-in method 'psgd'" in complaints[1]
    told = invoke("show", "method=athens", "method.ratio=0.5", "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["method"]["ratio"] == 0.5
    assert len(told.stderr.splitlines()) == 2
    before = source_digest("greek_methods.athens")
    (tmp_path / "a" / "greek_methods" / "inner.py").write_text(athens + "\n# changed\n")
    assert source_digest("greek_methods.athens") != before


def test_two_plug_ins_with_one_name_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text((PLUGINS / "chords.py").read_text())
    told = invoke("list", "--plugin", str(PLUGINS / "chords.py"), "--plugin", str(other))
    assert told.exit_code == 2
    assert "two plug-ins have a topology 'chords'" in told.stderr
    twice = invoke("list", "--plugin", str(PLUGINS / "chords.py"), "--plugin", str(PLUGINS / "chords.py"), "--json")
    assert json.loads(twice.stdout)["topology"].split().count("chords") == 1


COMMON = """
from commeff import Average, Local, Strategy, Transform
from commeff.core import Traits
from commeff.core.local import OptimizerFactory
from commeff.topologies import Topology
from commeff.transforms import Gossip, Outer

class Anchored(Transform):
    rows = ("anchor",)

    def __init__(self):
        self.average = Average()

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.anchor = v.clone()

    def __call__(self, x, communicator):
        self.anchor = x.clone()
        return self.average(x, communicator.child("average"))

class Misspelt(Anchored):
    traits = Traits(agrees=True, common=("ancor",))

class Unsaid(Anchored):
    traits = Traits(common=("anchor",))

def misspelt(optimizer: OptimizerFactory) -> Strategy:
    return Strategy(Local(optimizer), parameters=Misspelt())

def unsaid(optimizer: OptimizerFactory) -> Strategy:
    return Strategy(Local(optimizer), parameters=Unsaid())

def outer_gossip(optimizer: OptimizerFactory, outer: OptimizerFactory, topology: Topology) -> Strategy:
    return Strategy(Local(optimizer), parameters=Outer(Local(outer), Gossip(topology)))
"""


def test_common_memories_must_exist_and_belong_to_what_can_agree(tmp_path):
    """Whether an outer step agrees is decided by the average inside: its anchor may be named."""
    (tmp_path / "common.py").write_text(COMMON)
    broken = {v.name: (v.law, v.sentence) for v in check_plugin(str(tmp_path / "common.py")) if v.state == "broken"}
    assert {name: law for name, (law, _) in broken.items()} == dict.fromkeys(
        ("misspelt", "unsaid"), "agrees where it says so"
    )
    assert "Misspelt names ancor, which it does not have" in broken["misspelt"][1]
    assert "Unsaid is for a transform with agrees=True" in broken["unsaid"][1]


STUMBLES = """
import torch
from commeff.core import Local, Strategy, Transform
from commeff.transforms import Average, Outer

class Stumbles(Transform):
    def __call__(self, vectors, communicator):
        return vectors.view(5, 7)

def stumbles(optimizer) -> Strategy:
    return Strategy(Local(optimizer), Stumbles())

def hands_over_a_class(optimizer) -> Strategy:
    return Strategy(Local(optimizer), parameters=Outer(torch.optim.SGD, Average()))
"""


def test_a_method_that_stumbles_is_told_over_which_shape_and_what_an_outer_step_is(tmp_path):
    (tmp_path / "stumbles.py").write_text(STUMBLES)
    verdicts = check_plugin(str(tmp_path / "stumbles.py"))
    said = {
        name: " ".join(v.sentence for v in verdicts if v.name == name) for name in ("stumbles", "hands_over_a_class")
    }
    assert "(line 8 of" in said["stumbles"]
    assert "with vectors of (4, 12))" in said["stumbles"]
    assert [v.law for v in verdicts if v.name == "stumbles" and v.state == "broken"] == ["repeats"]
    assert "outer must be a local step, got SGD" in said["hands_over_a_class"]
