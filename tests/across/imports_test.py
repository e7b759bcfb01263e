"""Imports point one way, and few rooms know sbi."""

import ast
from functools import cache
from pathlib import Path

import pytest

import sbi_colt

ROOT = Path(sbi_colt.__file__).parent
# From the bottom up: a room imports its own layer and those before it.
LAYERS = (
    ("checks", "arrays", "randomness", "files", "stats", "results.test_result"),
    ("pair_keys", "replicate_checks", "draws_file", "draws", "weighted"),
    ("probes",),
    ("config", "results"),
    ("tilt",),
    ("colt", "baselines", "plausibility"),
    ("predictive",),
    ("sampling",),
    ("run_colt", "methods"),
    ("report",),
    ("diagnose",),
    ("compare",),
    ("demo", "benchmark"),
    ("cli",),
)
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
        path
    )
    for path in sorted(ROOT.rglob("*.py"))
    if path != ROOT / "__init__.py"
}


def layer(module):
    """The layer of a module, by the longest name that it begins with."""
    found = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    assert found, f"{module} has no layer"
    return max(found)[1]


def imports(module):
    """The package's own modules and the other packages that a module imports."""
    own, others = set(), set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    ignored = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            inner = name.removeprefix("sbi_colt.")
            if name.startswith("sbi_colt.") and inner in MODULES:
                own.add(inner)
            others.add(name.split(".")[0])
    return own - {module}, others


@cache
def depth(module):
    """How many imports lead from a module to the bottom; raises for a circle."""
    children = imports(module)[0]
    below = [child for child in children if not module.startswith(f"{child}.")]
    return 1 + max((depth(child) for child in below), default=0)


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_what_is_below_it(module):
    above = [name for name in imports(module)[0] if layer(name) > layer(module)]
    assert above == []


def test_no_circles_and_few_levels():
    """The commands are left out: they stand on all that is below."""
    levels = {
        name: depth(name)
        for name in MODULES
        if not name.startswith(("cli", "demo", "benchmark"))
    }
    assert max(levels.values()) <= 15, levels


def test_few_rooms_know_sbi():
    knowing = {name for name in MODULES if "sbi" in imports(name)[1]}
    assert all(name.startswith(("sampling", "benchmark", "demo")) for name in knowing)


def test_only_the_command_line_imports_the_benchmark():
    importers = {
        name
        for name in MODULES
        if any(child.startswith("benchmark") for child in imports(name)[0])
    }
    assert all(name == "cli" or name.startswith("benchmark") for name in importers)
