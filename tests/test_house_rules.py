"""The house rules that a machine can check, and for each rule a snippet that breaks it.

A rule is a function from modules to offences (`path:line: what`). `test_<rule>` applies it to
the code; the test below it proves that the rule can fail.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = (  # a package imports only from those after it
    "cli", "reporting", "gate", "runner", "serving", "ops", "architectures", "measure",
    "economics", "stats", "store", "scenario", "core",
)  # fmt: skip
HOMES = {  # third party -> the packages that may import it
    "jinja2": {"reporting"},
    "matplotlib": {"reporting"},
    "pandas": {"reporting"},
    "pydantic": {"scenario", "architectures", "economics", "store"},
    "torch": {"kernels", "measure", "ops", "runner"},
    "triton": {"kernels", "measure", "ops"},
    "typer": {"cli"},
}
BACKENDS = {"fla", "flashkda", "flashmla", "flashinfer", "cudnn", "triton", "sdpa", "recurrent"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
TOP_LEVEL = {
    "benchx", "kernels", "reports", "results", "scenarios", "tests",
    "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "constraints.txt",
}  # fmt: skip
JIT = ("triton.jit", "gluon.jit")  # their arguments are pointers and compile-time constants
BROAD_HANDLERS = {  # where a broad handler is right, and why
    "benchx/cli/app.py:main": "the last resort: says how to report the defect and exits with 4",
    "benchx/core/registry.py:load_plugins": "a plugin is another's code: it is left out by name",
}


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the repository."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def package(self) -> str:
        """`core` for benchx/core/x.py, `kernels` for kernels/x.py, "" for benchx/x.py."""
        parts = Path(self.path).parts
        return (
            parts[1] if parts[0] == "benchx" and len(parts) > 2 else parts[0].replace("benchx", "")
        )

    def at(self, node: ast.AST, what: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {what}"


Function = ast.FunctionDef | ast.AsyncFunctionDef
MODULES = [
    Module(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    for folder in ("benchx", "kernels", "scenarios")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def snippet(source: str, path: str = "benchx/core/example.py") -> list[Module]:
    return [Module(path, source)]


def expect_none(offences: Collection[str]) -> None:
    """Fail with every offence, not with the first one."""
    if offences:
        pytest.fail("\n".join(["", *sorted(offences)]), pytrace=False)


def functions(module: Module) -> Iterator[Function]:
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Every import of a module, `from benchx import core` counted as `benchx.core`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# Where things are.


def upward_imports(modules: Sequence[Module]) -> list[str]:
    found = []
    for module in modules:
        for node, name in imports(module):
            words = name.split(".")
            if name.startswith(".") and module.path.startswith("benchx/"):
                found.append(module.at(node, f"relative import {name}"))
            if words[0] != "benchx" or len(words) < 2 or module.package not in LAYERS:
                continue
            if words[1] in LAYERS and LAYERS.index(words[1]) < LAYERS.index(module.package):
                found.append(module.at(node, f"{module.package} imports {name}"))
    return found


def test_imports_point_one_way() -> None:
    expect_none(upward_imports(MODULES))


def test_an_upward_import_is_found_wherever_it_hides() -> None:
    for source in (
        "from benchx.cli import app",
        "from benchx import cli",
        "import benchx.cli.app",
        "def f():\n    from benchx.cli.app import main",
        "from . import sibling",
    ):
        assert upward_imports(snippet(source)), source
    assert not upward_imports(snippet("from benchx.core import errors", "benchx/cli/run.py"))


def homeless_imports(modules: Sequence[Module]) -> list[str]:
    return [
        module.at(node, f"{name.split('.')[0]} is imported outside {sorted(homes)}")
        for module in modules
        for node, name in imports(module)
        if module.path != "benchx/core/call.py"  # names tensors in annotations only
        and (homes := HOMES.get(name.split(".")[0]))
        and module.package not in homes
    ]


def test_each_heavy_third_party_is_imported_only_where_it_lives() -> None:
    expect_none(homeless_imports(MODULES))


def test_pandas_outside_reporting_is_found() -> None:
    source = "def f():\n    import pandas as pd"
    assert homeless_imports(snippet(source))
    assert not homeless_imports(snippet(source, "benchx/reporting/tables.py"))


def foreign_kernel_imports(modules: Sequence[Module]) -> list[str]:
    allowed = {"torch", "triton", "benchx_kernels"} | sys.stdlib_module_names  # "": relative
    return [
        module.at(node, f"kernels imports {name}")
        for module in modules
        for node, name in imports(module)
        if module.package == "kernels" and name.split(".")[0] not in {*allowed, ""}
    ]


def test_kernels_import_torch_and_triton_only() -> None:
    expect_none(foreign_kernel_imports(MODULES))


def test_a_kernel_that_imports_benchx_is_found() -> None:
    assert foreign_kernel_imports(snippet("from benchx.core import axes", "kernels/kda.py"))
    assert foreign_kernel_imports(snippet("import numpy", "kernels/kda.py"))


def forbidden_names(modules: Sequence[Module]) -> list[str]:
    return [m.path for m in modules if FORBIDDEN_NAMES & set(Path(m.path).with_suffix("").parts)]


def test_no_module_is_a_drawer_for_leftovers() -> None:
    expect_none(forbidden_names(MODULES))


def test_a_module_named_utils_is_found() -> None:
    assert forbidden_names(snippet("", "benchx/core/utils.py"))
    assert forbidden_names(snippet("", "benchx/common/axes.py"))


# Sizes.


def long_modules(modules: Sequence[Module], limit: int = 400) -> list[str]:
    sizes = [(len(module.source.splitlines()), module.path) for module in modules]
    return [f"{path}: {size} lines" for size, path in sizes if size > limit]


def test_no_module_is_longer_than_400_lines() -> None:
    expect_none(long_modules(MODULES))


def test_the_median_module_is_no_longer_than_150_lines() -> None:
    assert statistics.median(len(module.source.splitlines()) for module in MODULES) <= 150


def test_a_module_of_401_lines_is_found() -> None:
    assert long_modules(snippet("x = 1\n" * 401))
    assert not long_modules(snippet("x = 1\n" * 400))


def long_functions(modules: Sequence[Module], limit: int = 60) -> list[str]:
    return [
        module.at(node, f"{node.name} has {length(node)} lines")
        for module in modules
        for node in functions(module)
        if length(node) > limit
    ]


def test_no_function_is_longer_than_60_lines() -> None:
    expect_none(long_functions(MODULES))


def test_nine_functions_in_ten_have_at_most_30_lines() -> None:
    lengths = [length(node) for module in MODULES for node in functions(module)]
    assert statistics.quantiles(lengths, n=10)[-1] <= 30


def test_a_function_of_61_lines_is_found_inside_a_class_too() -> None:
    body = "class A:\n    def f(self):\n" + "        x = 1\n"
    assert long_functions(snippet(body + "        x = 2\n" * 59))
    assert not long_functions(snippet(body + "        x = 2\n" * 58))


def deep_nesting(modules: Sequence[Module], limit: int = 3) -> list[str]:
    block = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    found = []

    def visit(module: Module, node: ast.AST, depth: int) -> None:
        if isinstance(node, block) and depth > limit:
            found.append(module.at(node, f"nested {depth} deep"))
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            is_elif = isinstance(node, ast.If) and name == "orelse" and len(children) == 1
            for child in (child for child in children if isinstance(child, ast.AST)):
                deeper = isinstance(child, block) and not (is_elif and isinstance(child, ast.If))
                fresh = isinstance(child, Function | ast.ClassDef)
                visit(module, child, 0 if fresh else depth + deeper)

    for module in modules:
        visit(module, module.tree, 0)
    return found


def test_nothing_is_nested_more_than_three_deep() -> None:
    expect_none(deep_nesting(MODULES))


def test_a_fourth_level_is_found_and_elif_is_no_level() -> None:
    lines = ["if a:", "    for b in c:", "        while d:", "            with e:"]
    assert deep_nesting(snippet("\n".join([*lines, "                pass"])))
    assert not deep_nesting(snippet("\n".join([*lines[:3], "            pass"])))
    chain = "if a:\n    pass\n" + "elif b:\n    pass\n" * 5
    assert not deep_nesting(snippet(chain))


# Words.


def bare_annotations(modules: Sequence[Module]) -> list[str]:
    found = []
    for module in modules:
        for node in functions(module):
            spec = node.args
            named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
            bare = [arg.arg for arg in named if arg and not arg.annotation]
            if any(ast.unparse(mark).startswith(JIT) for mark in node.decorator_list):
                continue
            if set(bare) - {"self", "cls"} or node.returns is None:
                found.append(module.at(node, f"{node.name} is not fully annotated"))
    return found


def test_every_argument_and_result_is_annotated() -> None:
    expect_none(bare_annotations(MODULES))


def test_a_missing_annotation_is_found() -> None:
    for source in (
        "def f(a) -> None: ...",
        "def f(a: int): ...",
        "def f(*, a) -> None: ...",
        "def f(*a) -> None: ...",
        "def f(**a) -> None: ...",
        "async def f(a) -> None: ...",
    ):
        assert bare_annotations(snippet(source)), source
    assert not bare_annotations(snippet("class A:\n    def f(self, a: int) -> None: ..."))
    for mark in ("triton.jit", "gluon.jit(noinline=True)"):
        assert not bare_annotations(snippet(f"@{mark}\ndef f(pointer): ..."))


def undocumented(modules: Sequence[Module]) -> list[str]:
    found = []

    def visit(module: Module, node: ast.Module | ast.ClassDef) -> None:
        for child in node.body:
            if not isinstance(child, Function | ast.ClassDef) or child.name.startswith("_"):
                continue
            if not ast.get_docstring(child):
                found.append(module.at(child, f"{child.name} has no docstring"))
            if isinstance(child, ast.ClassDef):
                visit(module, child)

    for module in modules:
        if not ast.get_docstring(module.tree):
            found.append(f"{module.path}:1: the module has no docstring")
        visit(module, module.tree)
    return found


def test_every_public_name_has_a_docstring() -> None:
    expect_none(undocumented(MODULES))


def test_a_missing_docstring_is_found() -> None:
    assert len(undocumented(snippet("def f() -> None: ..."))) == 2
    documented = '"""Module."""\nclass A:\n    """Class."""\n    def f(self) -> None:\n        '
    assert undocumented(snippet(documented + "pass"))
    assert not undocumented(snippet(documented + '"""Method."""'))


def machine_paths(texts: Sequence[Module]) -> list[str]:
    pattern = re.compile(r"(?<![\w.])/(?:work|root|farm|home)/\w|/tmp/(?:venv|coord)\b")
    return [
        f"{text.path}:{number}: {line.strip()[:80]}"
        for text in texts
        for number, line in enumerate(text.source.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine() -> None:
    kinds = {".py", ".md", ".toml", ".yaml", ".txt", ".json", ".jsonl", ".csv", ".svg", ".html"}
    texts = [
        Module(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for path in (ROOT / name for name in tracked_files())
        if (path.suffix in kinds or path.parent.name == ".ci") and path.is_file()
    ]
    expect_none(machine_paths(texts))


def test_a_path_of_one_machine_is_found() -> None:
    for place in ("root", "home", "work"):
        assert machine_paths(snippet(f"x = '/{place}/someone/benchx'")), place
    assert not machine_paths(snippet("see https://example.org/work/shop and ../work/shop"))


# Conduct.


def broad_handlers(modules: Sequence[Module]) -> dict[str, str]:
    """`path:function` -> place, of each handler of everything that does not raise again."""
    found = {}
    for module in modules:
        tree = module.tree
        handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
        owners = [tree, *functions(module)]
        for node in handlers:
            kinds = ast.unparse(node.type) if node.type else "everything"
            broad = re.search(r"\b(everything|Exception|BaseException)\b", kinds)
            if broad and not isinstance(node.body[-1], ast.Raise):
                owner = [o for o in owners if any(n is node for n in ast.walk(o))][-1]
                name = getattr(owner, "name", "<module>")
                found[f"{module.path}:{name}"] = module.at(node, f"except {kinds} in {name}")
    return found


def test_no_handler_of_everything_yields_a_result() -> None:
    found = broad_handlers(MODULES)
    expect_none([place for key, place in found.items() if key not in BROAD_HANDLERS])


def test_no_reviewed_handler_has_gone_stale() -> None:
    assert set(BROAD_HANDLERS) <= set(broad_handlers(MODULES))


def test_a_handler_of_everything_is_found() -> None:
    for kind in ("except:", "except Exception:", "except (ValueError, BaseException) as e:"):
        source = f"def f():\n    try:\n        g()\n    {kind}\n        return 0"
        assert broad_handlers(snippet(source)), kind
        assert not broad_handlers(snippet(source.replace("return 0", "raise"))), kind
    assert not broad_handlers(snippet("try:\n    g()\nexcept ValueError:\n    pass"))


def backend_branches(modules: Sequence[Module]) -> list[str]:
    found = []
    for module in (module for module in modules if module.package not in ("ops", "kernels")):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare | ast.MatchValue):
                words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                if words & BACKENDS:
                    found.append(module.at(node, f"branches on {words & BACKENDS}"))
    return found


def test_nobody_branches_on_the_name_of_a_backend() -> None:
    expect_none(backend_branches(MODULES))


def test_a_branch_on_the_name_of_a_backend_is_found() -> None:
    for source in (
        "if backend == 'fla':\n    pass",
        "x = 1 if name in ('cudnn', 'fla') else 2",
        "match name:\n    case 'fla':\n        pass",
    ):
        assert backend_branches(snippet(source)), source
    assert not backend_branches(snippet("if backend == 'fla':\n    pass", "benchx/ops/x.py"))


def forwarded_kwargs(modules: Sequence[Module]) -> list[str]:
    found = []
    for module in modules:
        for node in (node for node in functions(module) if node.args.kwarg):
            name = node.args.kwarg.arg if node.args.kwarg else ""
            spread = [
                keyword
                for call in ast.walk(node)
                if isinstance(call, ast.Call)
                for keyword in call.keywords
                if keyword.arg is None and getattr(keyword.value, "id", None) == name
            ]
            if spread:
                found.append(module.at(node, f"{node.name} passes **{name} on"))
    return found


def test_keyword_arguments_are_not_passed_through() -> None:
    expect_none(forwarded_kwargs(MODULES))


def test_passed_through_keyword_arguments_are_found() -> None:
    assert forwarded_kwargs(snippet("def f(**kw):\n    return g(1, **kw)"))
    assert not forwarded_kwargs(snippet("def f(**kw):\n    return sorted(kw)"))


# The tree.


def tracked_files() -> list[str]:
    """Files under version control, or every file when this is an unpacked archive."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "-z"]
        return [name for name in subprocess.check_output(command, text=True).split("\0") if name]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]


def unknown_top_level(files: Sequence[str]) -> set[str]:
    tops = {Path(name).parts[0] for name in files}
    return {top for top in tops if top not in TOP_LEVEL and not top.startswith(".")}


def test_the_top_level_holds_only_what_the_layout_names() -> None:
    expect_none(unknown_top_level(tracked_files()))


def test_a_stray_file_on_the_top_level_is_found() -> None:
    assert unknown_top_level(["setup.py", "benchx/core/axes.py", ".ci/run"]) == {"setup.py"}


def folders_without_readme(files: Sequence[str]) -> list[str]:
    tops = {Path(name).parts[0] for name in files if len(Path(name).parts) > 1}
    return sorted(t for t in tops if not t.startswith(".") and f"{t}/README.md" not in set(files))


def test_every_folder_has_a_readme() -> None:
    expect_none(folders_without_readme(tracked_files()))


def test_a_folder_without_readme_is_found() -> None:
    assert folders_without_readme(["a/README.md", "a/x.py", "b/x.py"]) == ["b"]


def unlisted_packages(modules: Sequence[Module], listed: Sequence[str]) -> set[str]:
    names = {str(Path(module.path).parent).replace("/", ".") for module in modules}
    renamed = {re.sub(r"^(kernels|scenarios)", r"benchx_\1", name) for name in names}
    return renamed - set(listed)


def test_every_package_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    expect_none(unlisted_packages(MODULES, project["tool"]["setuptools"]["packages"]))


def test_a_package_missing_from_the_wheel_is_found() -> None:
    assert unlisted_packages(snippet("", "benchx/new/x.py"), ["benchx"]) == {"benchx.new"}
