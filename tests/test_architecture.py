"""Rules of the code base that no linter knows, read from the syntax trees."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tf_amp_kit

PACKAGE = Path(tf_amp_kit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 300

PRIVATE_MODULES = ("keras.src", "tensorflow.python")

# Underscore names that are public: namedtuple's, and the notebook's protocol.
PUBLIC_UNDERSCORES = {"_asdict", "_fields", "_replace", "_repr_html_"}

Fault = tuple[int, str]
Rule = Callable[[ast.Module], Iterator[Fault]]


def private_imports(tree: ast.Module) -> Iterator[Fault]:
    """Private modules of Keras and TensorFlow, imported or reached by attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node).replace("tf.", "tensorflow.")]
        else:
            continue
        for name in names:
            if f"{name}.".startswith(tuple(f"{private}." for private in PRIVATE_MODULES)):
                yield node.lineno, name


def foreign_underscores(tree: ast.Module) -> Iterator[Fault]:
    """Underscore attributes that the file does not define itself.

    Of whom an object is cannot be read from a syntax tree. What a file defines
    is its own; everything else with an underscore belongs to somebody else.
    """
    own = set(defined_names(tree)) | PUBLIC_UNDERSCORES
    for line, name in read_attributes(tree):
        if name.startswith("_") and not name.startswith("__") and name not in own:
            yield line, name


def read_attributes(tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield node.lineno, name
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def defined_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def broad_excepts(tree: ast.Module) -> Iterator[Fault]:
    """`except:`, `except Exception:` and the like, which swallow the user's own errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node).endswith("suppress(Exception)"):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.ExceptHandler):
            caught = "" if node.type is None else ast.unparse(node.type)
            if node.type is None or "Exception" in caught.strip("()").split(", "):
                yield node.lineno, f"except {caught}".strip()


def asserts(tree: ast.Module) -> Iterator[Fault]:
    """`assert`, which `python -O` drops."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert"


RULES: list[Rule] = [private_imports, foreign_underscores, broad_excepts, asserts]

PLANTED = [
    (private_imports, "import keras.src.layers", "keras.src.layers"),
    (private_imports, "from keras.src import tree", "keras.src.tree"),
    (private_imports, "from keras import src", "keras.src"),
    (private_imports, "import tensorflow.python as p", "tensorflow.python"),
    (private_imports, "keras.src.backend", "keras.src.backend"),
    (private_imports, "tf.python.framework", "tensorflow.python"),
    (foreign_underscores, "layer._flatten_layers()", "_flatten_layers"),
    (foreign_underscores, "self._build_shapes_dict", "_build_shapes_dict"),
    (foreign_underscores, "getattr(layer, '_path')", "_path"),
    (broad_excepts, "try: f()\nexcept: pass", "except"),
    (broad_excepts, "try: f()\nexcept Exception: pass", "except Exception"),
    (broad_excepts, "try: f()\nexcept (OSError, Exception): pass", "except (OSError, Exception)"),
    (broad_excepts, "with contextlib.suppress(Exception): f()", "contextlib.suppress(Exception)"),
    (asserts, "assert x", "assert"),
]

ALLOWED = [
    (private_imports, "from keras import layers\nimport tensorflow as tf\ntf.math.exp"),
    (foreign_underscores, "self._x = 1\nself._x\nx.__class__\nt._replace(a=1)"),
    (broad_excepts, "try: f()\nexcept (OSError, ValueError): pass"),
]


@pytest.mark.parametrize(("rule", "code", "fault"), PLANTED)
def test_a_rule_finds_what_it_is_for(rule: Rule, code: str, fault: str) -> None:
    assert fault in [found for _, found in rule(ast.parse(code))]


@pytest.mark.parametrize(("rule", "code"), ALLOWED)
def test_a_rule_lets_good_code_pass(rule: Rule, code: str) -> None:
    assert list(rule(ast.parse(code))) == []


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    door = {private_imports, foreign_underscores}
    faults = [
        f"{path.relative_to(PACKAGE)}:{line}: {found}"
        for path in FILES
        if not (rule in door and path.parent.name == "_keras")
        for line, found in rule(ast.parse(path.read_text()))
    ]
    assert faults == []


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walks all but what only a type checker executes."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from runtime_nodes(child)


def imported_modules(tree: ast.Module, modules: set[str]) -> set[str]:
    """The package's own modules that a file imports, in functions too."""
    found = set()
    for node in runtime_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= names or ({node.module} & modules)
    return found


def test_no_import_goes_in_a_circle() -> None:
    modules = {module_name(path): path for path in FILES}
    graph = {
        name: imported_modules(ast.parse(path.read_text()), set(modules))
        for name, path in modules.items()
    }
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(modules)
