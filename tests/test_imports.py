"""The arrows of the design: who may import whom, read from the source with `ast`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("topologies", "compressors", "commeff", "experiments")

OUTSIDE = {  # what each package may import beside the standard library
    "topologies": {"networkx", "numpy", "scipy"},
    "compressors": {"torch", "numpy"},
    "commeff": {"torch", "numpy", "scipy", "yaml", "topologies", "compressors"},
}
ONLY_IN = {  # modules with few homes
    "networkx": ("topologies",),
    "scipy": ("topologies", "commeff.planner", "experiments"),
    "yaml": ("commeff.cluster", "experiments"),
    "torch.distributed": ("commeff.communicator", "commeff.parallelism", "experiments.bench"),
    "hydra": ("experiments.config",),
    "omegaconf": ("experiments.config",),
    "torchvision": ("experiments.tasks",),
}
NEVER = {  # inside commeff: what each module must not know
    "commeff.strategy": ("transforms", "local", "methods", "replicas", "trainer", "recorder", "checkpoint"),
    "commeff.local": ("transforms", "methods", "replicas", "trainer", "recorder", "checkpoint", "communicator"),
    "commeff.transforms": ("methods", "replicas", "trainer", "recorder", "checkpoint"),
    "commeff.communicator": (
        "strategy",
        "local",
        "transforms",
        "methods",
        "replicas",
        "trainer",
        "recorder",
        "checkpoint",
    ),
    "commeff.replicas": ("transforms", "local", "methods", "trainer", "recorder", "checkpoint"),
    "commeff.trainer": ("transforms", "local", "methods"),
    "commeff.methods": ("replicas", "trainer", "recorder", "checkpoint"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def violations(module: str, names: set[str]) -> list[str]:
    package = module.split(".")[0]
    found = []
    if package in OUTSIDE:
        allowed = OUTSIDE[package] | {package} | sys.stdlib_module_names
        found += [f"{module} imports {name}" for name in names if name.split(".")[0] not in allowed]
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


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_imports_follow_the_arrows(path: Path) -> None:
    assert violations(module_name(path), set(imports(ast.parse(path.read_text())))) == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("topologies.static", "torch"),
        ("compressors.sparse", "commeff.strategy"),
        ("compressors.sparse", "topologies"),
        ("commeff.transforms.gossip", "networkx"),
        ("commeff.strategy", "torch.distributed"),
        ("commeff.strategy", "commeff.transforms.averaging"),
        ("commeff.trainer", "experiments.config"),
        ("experiments.build", "hydra.utils"),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, imported: str) -> None:
    assert len(violations(module, {imported})) >= 1


def test_configurations_are_instantiated_in_one_module() -> None:
    """`instantiate(...)` is called in experiments/build.py only."""
    callers = {
        module_name(path)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "instantiate"
    }
    assert callers == {"experiments.build"}
