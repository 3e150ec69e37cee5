"""Reads the imports: they point one way."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jaxrl"
# What each part may import of the others. A part is a module of jaxrl, or a folder of it.
ALLOWED = {
    "errors": set(),
    "ending": set(),
    "sums": set(),
    "heap": set(),
    "agent_config": set(),
    "config": {"agent_config", "errors"},
    "overrides": {"config", "errors", "runs"},
    "checks": {"agent_config", "config", "errors"},
    "games": {"config", "data"},
    "types": set(),
    "returns": {"types"},
    "distributional": {"types"},
    "optimizers": {"types", "config"},
    "convolution": set(),
    "networks": {"types", "config", "convolution", "optimizers"},
    "replay": {"types", "config", "errors"},
    "prioritised": {"optimizers", "replay"},
    "exploration": {"agent_config", "config"},
    "minibatches": {"types", "agent_config", "optimizers"},
    "q_learning": {
        "types", "agent_config", "config", "exploration", "networks", "optimizers", "prioritised",
        "replay",
    },
    "agents": {
        "types", "agent_config", "config", "returns", "distributional", "networks", "optimizers",
        "replay", "exploration", "minibatches", "q_learning",
    },
    "envs": {"types", "config", "errors", "games"},
    "episodes": {"types"},
    "rollout": {"types", "episodes"},
    "finite": {"types", "optimizers"},
    "lag": {"types"},
    "distribute": {"types", "config", "errors"},
    "launch": {"config", "errors"},
    "rendezvous": {"config", "errors", "launch"},
    "processes": {"config", "ending", "errors", "launch", "rendezvous"},
    "signals": {"ending", "processes"},
    "watch": {"ending", "errors"},
    "learners": {"types", "config", "networks", "optimizers"},
    "program": {
        "types", "config", "checks", "distribute", "episodes", "finite", "lag", "learners",
        "rollout",
    },
    "memory": {"types", "agent_config", "config", "errors", "distribute", "replay"},
    "stored": {"errors", "sums"},
    "checkpoint": {"types", "config", "errors", "heap", "program", "stored", "sums"},
    "metrics": {"types", "episodes", "errors"},
    "progress": {"types", "episodes"},
    "runs": {"config", "errors", "metrics"},
    "plotting": {"config", "errors", "grouping", "metrics", "runs"},
    "scores": {"config", "errors", "games", "runs"},
    "grouping": {"config", "runs"},
    "summaries": {"config", "errors", "grouping", "scores"},
    "profiles": {"errors", "plotting", "scores"},
    "following": {"config", "metrics", "progress", "runs"},
    "reference": {"agent_config", "config"},
    "evaluate": {
        "types", "agent_config", "config", "errors", "agents", "envs", "episodes", "rollout",
        "checkpoint", "runs", "scores", "watch",
    },
    "video": {"types", "config", "agents", "envs", "rollout", "evaluate"},
    "inspecting": {
        "types", "agent_config", "config", "errors", "distributional", "networks", "rollout",
        "agents", "envs", "evaluate",
    },
    "showing": {"errors", "inspecting", "plotting", "video"},
    "bench": {
        "types", "agent_config", "config", "errors", "checks", "agents", "envs", "distribute",
        "memory", "program", "progress", "scaling",
    },
    "scaling": set(),
    "machine": {"distribute", "runs"},
    "host_checks": {"machine"},
    "doctor": {"host_checks", "machine"},
    "gradient_probe": {"types", "config", "convolution", "networks"},
    "probes": {
        "types", "agent_config", "config", "agents", "distribute", "envs", "episodes",
        "gradient_probe", "program",
    },
    "examining": {"arguments", "doctor", "host_checks", "machine"},
    "tune": {"agent_config", "config", "errors", "checks", "distribute", "bench", "progress"},
    "train": {
        "config", "errors", "checks", "memory", "overrides", "agents", "envs", "distribute",
        "processes", "program", "checkpoint", "metrics", "progress", "runs", "plotting", "evaluate",
        "signals", "stored", "watch", "loop", "heap", "scores",
    },
    "loop": {
        "types", "config", "errors", "episodes", "distribute", "finite", "processes", "program",
        "checkpoint", "metrics", "progress", "signals", "stored", "watch",
    },
    "arguments": {"config", "errors", "checks", "games"},
    "measuring": {
        "arguments", "config", "errors", "plotting", "bench", "tune", "progress", "suite",
        "suite_records", "suite_run", "suite_table", "sweep",
    },
    "suite": {"errors"},
    "suite_table": {"errors", "runs", "suite"},
    "suite_records": {"errors", "runs", "suite", "suite_table"},
    "suite_run": {
        "errors", "machine", "metrics", "progress", "runs", "suite", "suite_records", "suite_table",
        "sweep",
    },
    "report_runs": {"errors", "metrics", "runs", "scores", "stored"},
    "report_plots": {"config", "metrics", "plotting", "report_runs"},
    "report": {
        "errors", "games", "progress", "report_plots", "report_runs", "runs", "scores",
    },
    "members": {
        "config", "runs", "stored", "checks", "errors", "games", "metrics", "scores",
    },
    "sweep": {"members", "runs", "errors", "metrics", "report", "progress"},
    "sweeping": {"arguments", "errors", "members", "sweep", "progress"},
    "looking": {
        "arguments", "errors", "evaluate", "following", "plotting", "profiles", "report", "runs",
        "scores", "summaries", "video",
    },
    "cli": {
        "arguments", "examining", "measuring", "looking", "sweeping", "config", "errors", "games",
        "runs", "train", "processes", "launch",
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
