"""The one-way rule of imports between the five folders (ARCHITECTURE.md), and names of modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "treadle.ir": "ir",
    "treadle.passes": "passes",
    "treadle.codegen": "codegen",
    "treadle.runtime": "runtime",
    "treadle": "frontend",
}
MAY_IMPORT = {
    "ir": {"ir"},
    "passes": {"passes", "ir"},
    "codegen": {"codegen", "ir"},
    "runtime": {"runtime"},
    "frontend": {"ir", "passes", "codegen", "runtime", "frontend"},
}
FILES = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))


def folder_of(module: str) -> str | None:
    """Which of the folders a module belongs to; None for other people's modules."""
    for package, folder in PACKAGES.items():
        if module == package or module.startswith(package + "."):
            return folder
    return None


def module_of(path: Path) -> list[str]:
    """The package that a file's relative imports start from."""
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    package = next(p for p, f in PACKAGES.items() if f == folder)
    return [*package.split("."), *rest[:-1]]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those in functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = module_of(path)[: -node.level + 1 or None] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from treadle import ir` imports treadle.ir, not the front end.
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {folder} must not import {module}"
        for line, module in imported(path)
        if folder_of(module) not in {None, *MAY_IMPORT[folder]}
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_are_named_for_what_they_hold() -> None:
    bad = [str(p.relative_to(ROOT)) for p in FILES if p.stem in ("utils", "helpers") or p.stem.startswith("utils_")]
    assert not bad, bad


def test_the_rule_sees_violations() -> None:
    assert folder_of("treadle.ir.ops") == "ir"
    assert folder_of("treadle.nn") == "frontend"
    assert folder_of("treadle.irregular") == "frontend"
    assert folder_of("numpy") is None
    assert len(FILES) > 5
