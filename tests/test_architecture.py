"""Reads the imports: they point one way."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jaxrl"
# What each part may import of the others. A part is a module of jaxrl, or a folder of it.
ALLOWED = {
    "config": set(),
    "checks": {"config"},
    "games": {"config", "data"},
    "types": set(),
    "returns": {"types"},
    "distributional": {"types"},
    "optimizers": {"types", "config"},
    "convolution": set(),
    "networks": {"types", "config", "convolution", "optimizers"},
    "replay": {"types", "config"},
    "agents": {
        "types", "config", "returns", "distributional", "networks", "optimizers", "replay",
    },
    "envs": {"types", "config", "games"},
    "episodes": {"types"},
    "rollout": {"types", "episodes"},
    "distribute": {"types", "config"},
    "launch": {"config"},
    "rendezvous": {"config", "launch"},
    "processes": {"config", "launch", "rendezvous"},
    "learners": {"types", "config", "networks", "optimizers"},
    "program": {
        "types", "config", "checks", "replay", "distribute", "episodes", "learners", "rollout",
    },
    "checkpoint": {"types", "config", "program"},
    "metrics": {"types"},
    "progress": {"types", "episodes"},
    "runs": {"config"},
    "plotting": {"config", "metrics"},
    "evaluate": {
        "types", "config", "games", "agents", "envs", "episodes", "rollout", "checkpoint", "runs",
    },
    "video": {"types", "config", "agents", "envs", "rollout", "evaluate"},
    "bench": {
        "types", "config", "checks", "agents", "envs", "distribute", "program", "progress",
        "scaling",
    },
    "scaling": set(),
    "tune": {"config", "checks", "distribute", "bench", "progress"},
    "train": {
        "types", "config", "checks", "agents", "envs", "episodes", "distribute", "processes",
        "program", "checkpoint", "metrics", "progress", "runs", "plotting", "evaluate",
    },
    "arguments": {"config", "checks", "games"},
    "measuring": {"arguments", "config", "plotting", "bench", "tune", "progress"},
    "cli": {
        "arguments", "measuring", "config", "games", "runs", "train", "evaluate", "video",
        "plotting", "processes", "launch",
    },
    "__main__": {"cli"},
    "__init__": set(),
    "data": set(),
}  # fmt: skip


def part_of(module: str) -> str | None:
    names = module.split(".")
    return names[1] if names[0] == "jaxrl" and len(names) > 1 else None


def imports(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {part_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "jaxrl":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            found.add(part_of(node.module or ""))
    return found - {None}


def violations(sources: dict[str, str]) -> list[str]:
    wrong = []
    for path, source in sources.items():
        part = path.split("/")[0].removesuffix(".py")
        wrong += [f"{path} imports {x}" for x in imports(source) - ALLOWED[part] - {part}]
    return wrong


def test_imports_point_one_way():
    sources = {str(p.relative_to(PACKAGE)): p.read_text() for p in PACKAGE.rglob("*.py")}
    assert len(sources) > 20
    assert violations(sources) == []


def test_a_wrong_direction_is_found():
    assert violations({"agents/a2c.py": "from jaxrl.envs import make_engine"})
    assert violations({"envs/catch.py": "def f():\n    from jaxrl import agents"})
    assert violations({"types.py": "import jaxrl.returns"})


def test_the_rules_have_no_cycle():
    order = dict(ALLOWED)
    while order:
        free = [part for part, needs in order.items() if not needs & set(order)]
        assert free, f"a cycle among {sorted(order)}"
        for part in free:
            del order[part]
