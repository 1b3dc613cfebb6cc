"""The house's rules: imports point downwards, have no cycles, and `import mlcpc` is light."""

import ast
import subprocess
import sys
from pathlib import Path

import mlcpc

ROOT = Path(mlcpc.__file__).parent
#: Lowest first. A module may import from its own layer's list only what stands before it, and from every lower layer.
LAYERS = [
    [
        "bounds",
        "schedules",
        "scores",
        "distributed",
        "objectives",
        "pairs",
        "tiles",
        "square",
        "streaming",
        "rowwise",
        "batches",
        "labels",
        "contrastive",
        "queues",
        "adapters",
        "exact",
    ],
    ["config", "runs", "draws"],
    ["plots"],
    [
        "data",
        "augment",
        "models",
        "checkpoints",
        "ranks",
        "plan",
        "metrics",
        "loop",
        "replay",
        "classify",
        "sweep",
        "sheets",
    ],
    ["mi", "distill", "pretrain"],
    ["reproduce"],
    ["report"],
    ["doctor", "commands", "cli", "__main__"],
]
RANK = {name: (layer, place) for layer, names in enumerate(LAYERS) for place, name in enumerate(names)}
TORCH_ONLY = LAYERS[0]
STDLIB_ONLY = LAYERS[1]
SECTIONS = LAYERS[4]  # never import each other


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    """Full names of what a file imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_module_has_its_place() -> None:
    tops = {name.split(".")[0] for name in modules()} - {"__init__"}
    assert tops == set(RANK)


def test_imports_point_downwards() -> None:
    for name, path in modules().items():
        top = name.split(".")[0]
        if top == "__init__":
            continue
        for other in imports(path):
            parts = other.split(".")
            if parts[0] != "mlcpc" or len(parts) < 2 or parts[1] not in RANK or parts[1] == top:
                continue
            assert RANK[parts[1]] < RANK[top], f"{name} imports {other}, which is not below it"
            assert not (top in SECTIONS and parts[1] in SECTIONS), f"{name} imports the section {other}"


def test_no_cycles_inside_packages() -> None:
    known = modules()
    edges = {
        name: {other.removeprefix("mlcpc.") for other in imports(path, top_level_only=True)} & set(known) - {name}
        for name, path in known.items()
    }

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        for other in edges[name]:
            visit(other, (*trail, name))

    for name in known:
        visit(name, ())


def test_the_lowest_modules_import_torch_and_the_standard_library_only() -> None:
    for allowed, names in (({"torch", "mlcpc"}, TORCH_ONLY), ({"mlcpc", "torch"}, STDLIB_ONLY)):
        for name in names:
            outside = {other.split(".")[0] for other in imports(ROOT / f"{name}.py")} - set(sys.stdlib_module_names)
            assert outside <= allowed, f"{name} imports {outside - allowed}"


def test_import_mlcpc_is_light() -> None:
    """Beyond what torch itself loads, nothing but ours and the standard library."""
    code = (
        "import sys, torch; before = set(sys.modules); import mlcpc; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"mlcpc", "torch"}


def test_at_most_twenty_public_names_each_with_a_docstring() -> None:
    assert len(mlcpc.__all__) <= 20
    assert mlcpc.__all__ == sorted(mlcpc.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    for name in mlcpc.__all__:
        assert getattr(mlcpc, name).__doc__
