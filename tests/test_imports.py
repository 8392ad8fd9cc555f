"""The arrows of the design: who may import whom, read from the source with `ast`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx
import pytest

import commeff
from tests.owned import run

ROOT = Path(__file__).parents[1]
FOLDERS = ("topologies", "compressors", "experiments", "commeff")  # the first three are linked into the last
PURE = ("commeff.topologies", "commeff.compressors")
APPLICATION = "commeff.experiments"

OUTSIDE = {  # what the modules of each package may import beside the standard library and commeff
    "commeff.topologies": {"networkx", "numpy", "scipy"},
    "commeff.compressors": {"torch", "numpy"},
    "commeff": {"torch", "numpy", "scipy", "yaml"},
}
GUESTS = {"commeff.adapters.lightning": {"lightning"}, "commeff.adapters.transformers": {"transformers"}}  # when used
ONLY_IN = {  # modules with few homes
    "networkx": ("commeff.topologies",),
    "scipy": ("commeff.topologies", "commeff.planner", APPLICATION),
    "yaml": ("commeff.cluster", APPLICATION),
    "torch.distributed": (
        "commeff.communicator",
        "commeff.sharding",
        "commeff.testing",
        "commeff.experiments.measure",
        "commeff.experiments.studies",
    ),
    "commeff.experiments.planning": (
        "commeff.experiments.planning",
        "commeff.experiments.cli",
        "commeff.experiments.studies",
    ),
    "commeff.experiments.studies": (  # a wheel lacks it: what else imports it does so in a function, and says so
        "commeff.experiments.studies",
        "commeff.experiments.cli",
        "commeff.experiments.reproduce.command",
    ),
    "hydra": ("commeff.experiments.config.compose",),
    "torchvision": (),  # installed for users; beside a torch for CPUs its wheel of PyPI breaks what imports it
}
ABOVE = ("methods", "replicas", "training", "adapters", "laws", "cluster", "planner")
NEVER = {  # inside commeff: the rooms that each room must not know
    "commeff.core": ("transforms", *ABOVE),
    "commeff.transforms": ABOVE,
    "commeff.communicator": ("core", "transforms", *ABOVE),
    "commeff.sharding": ("transforms", *ABOVE),
    "commeff.replicas": ("core", "transforms", "methods", "training", "adapters", "laws", "cluster", "planner"),
    "commeff.methods": ("replicas", "training", "adapters", "laws", "cluster", "planner"),
    "commeff.training": ("transforms", "methods", "adapters", "laws", "cluster", "planner"),
    "commeff.adapters": ("methods", "laws", "cluster", "planner"),
    "commeff.cluster": ("methods", "replicas", "training", "adapters", "laws", "planner"),
    "commeff.planner": ("replicas", "training", "adapters", "laws"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts if parts[0] == "commeff" else ("commeff", *parts)
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported name, dotted as far as it is written: `from a import b` gives a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources() -> list[Path]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if not path.is_relative_to(ROOT / "commeff") or path.resolve() == path]


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def package_of(module: str) -> str:
    return next((p for p in (*PURE, APPLICATION) if within(module, p)), "commeff")


def violations(module: str, names: set[str]) -> list[str]:
    package = package_of(module)
    found = []
    if package in OUTSIDE:
        allowed = OUTSIDE[package] | GUESTS.get(module, set()) | {"commeff"} | sys.stdlib_module_names
        found += [f"{module} imports {name}" for name in names if name.split(".")[0] not in allowed]
    if package in PURE:
        ours = [name for name in names if within(name, "commeff") and name != "commeff"]
        found += [f"{module} imports {name}" for name in ours if not within(name, package)]
    elif package == "commeff" and module not in ("commeff", "commeff.__main__"):  # the two faces of all
        found += [f"{module} imports {name}" for name in names if within(name, APPLICATION)]
    for owned, homes in ONLY_IN.items():
        if not any(within(module, home) for home in homes):
            found += [
                f"{module} imports {name}, which belongs to {' and '.join(homes)}"
                for name in names
                if within(name, owned)
            ]
    for inner, strangers in NEVER.items():
        if within(module, inner):
            found += [f"{module} imports {name}" for name in names for s in strangers if within(name, f"commeff.{s}")]
    return found


def test_imports_follow_the_arrows() -> None:
    assert [
        v for path in sources() for v in violations(module_name(path), set(imports(ast.parse(path.read_text()))))
    ] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("commeff.topologies.static", "torch"),
        ("commeff.compressors.sparse", "commeff.core.strategy"),
        ("commeff.compressors.sparse", "commeff.topologies"),
        ("commeff.transforms.gossip", "networkx"),
        ("commeff.core.strategy", "torch.distributed"),
        ("commeff.core.strategy", "commeff.transforms.averaging"),
        ("commeff.training.trainer", "commeff.experiments.config"),
        ("commeff.experiments.config.build", "hydra.utils"),
        ("commeff.experiments.data.images", "torchvision.io"),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, imported: str) -> None:
    assert len(violations(module, {imported})) >= 1


def test_configurations_are_instantiated_in_one_module() -> None:
    """`instantiate(...)` is called in experiments/config/build.py only."""
    callers = {
        module_name(path)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "instantiate"
    }
    assert callers == {"commeff.experiments.config.build"}


def test_the_drop_in_imports_torch_numpy_networkx_and_scipy_at_most() -> None:
    code = """
import sys

import networkx, numpy, scipy.optimize, scipy.sparse.csgraph, scipy.sparse.linalg, torch.distributed.fsdp

before = {name.partition(".")[0] for name in sys.modules}
from commeff import DistributedOptimizer, methods, topologies
from commeff.adapters.ddp_hook import HookState

print(*{name.partition(".")[0] for name in sys.modules} - before - sys.stdlib_module_names)
"""
    assert run([sys.executable, "-c", code], check=True).stdout.split() == ["commeff"]


def test_the_public_face_has_the_words_that_the_readme_uses_and_no_others() -> None:
    code = "import sys, commeff; print(*dir(commeff)); sys.exit('torch' in sys.modules)"
    shown = run([sys.executable, "-c", code], check=True).stdout.split()
    assert set(shown) == {*commeff.__all__, "__version__"}
    assert all(getattr(commeff, name) is not None for name in commeff.__all__)
    written = {name.split(".")[-1] for name in imports(ast.parse((ROOT / "commeff" / "__init__.py").read_text()))}
    assert set(commeff.__all__) <= written, "type checkers see a name that is not exported, or miss one"
    with pytest.raises(AttributeError, match="has no attribute 'Avrage'"):
        commeff.Avrage  # noqa: B018


def defined_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Top-level classes of one name in several modules, given their sources."""
    homes: dict[str, list[str]] = {}
    for module, source in modules.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_a_class_name_names_one_thing() -> None:
    modules = {module_name(path): path.read_text() for path in sources()}
    assert defined_twice(modules) == {}
    modules["mine"] = "class Strategy: ..."
    assert defined_twice(modules)["Strategy"] == ["commeff.core.strategy", "mine"]


FACES = (  # modules that name what the rooms below them offer, and so belong to no room
    "commeff",  # the words of the README
    "commeff.__main__",  # the command
    "commeff.planner",  # the planner's words, `search` among them
    "commeff.experiments.tasks",  # the tasks, those of the rooms below among them
)


def room(module: str, packages: set[str]) -> str:
    return module if module in packages else module.rpartition(".")[0]


def circles(imported: dict[str, set[str]], packages: set[str]) -> list[list[str]]:
    """Rooms (folders) that reach each other by imports, at the top of a module or inside a function."""
    graph = networkx.DiGraph()
    for module, names in imported.items():
        for name in names:
            while name and name not in imported:
                name = name.rpartition(".")[0]
            if name not in ("", "commeff") and module not in FACES:
                graph.add_edge(room(module, packages), room(name, packages))
    return [sorted(rooms) for rooms in networkx.strongly_connected_components(graph) if len(rooms) > 1]


def test_rooms_form_no_circles() -> None:
    imported = {module_name(path): set(imports(ast.parse(path.read_text()))) for path in sources()}
    packages = {module_name(path) for path in sources() if path.name == "__init__.py"}
    assert circles(imported, packages) == []
    imported["commeff.experiments.run.launch.rendezvous"].add("commeff.experiments.run.runner")
    assert circles(imported, packages) == [["commeff.experiments.run", "commeff.experiments.run.launch"]]


def file_circles(trees: Mapping[str, ast.Module]) -> list[list[str]]:
    """Files of one folder that reach each other by imports, at the top or inside a function, through files of it."""
    graph = networkx.DiGraph()
    for module, tree in trees.items():
        run = [node for node in tree.body if not isinstance(node, ast.If)]  # not `if TYPE_CHECKING`
        for name in imports(ast.Module(run, [])):
            while name and name not in trees:
                name = name.rpartition(".")[0]
            if name.rpartition(".")[0] == module.rpartition(".")[0]:
                graph.add_edge(module, name)
    return [sorted(files) for files in networkx.strongly_connected_components(graph) if len(files) > 1]


def test_the_files_of_a_room_form_no_circles() -> None:
    trees = {module_name(path): ast.parse(path.read_text()) for path in sources()}
    assert file_circles(trees) == []
    trees["commeff.core.state"].body += ast.parse("from commeff.core.strategy import Strategy").body
    (circle,) = file_circles(trees)
    assert {"commeff.core.state", "commeff.core.strategy"} <= {*circle}


def test_a_circle_inside_functions_is_one() -> None:
    trees = {
        "room.a": ast.parse("def f():\n    from room.b import g"),
        "room.b": ast.parse("def g():\n    from room.a import f"),
    }
    assert file_circles(trees) == [["room.a", "room.b"]]
