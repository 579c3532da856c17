"""The lifecycle as a picture. `python -m tests.unit.lifecycle_diagram` rewrites docs/lifecycle.md."""

from collections import defaultdict
from pathlib import Path

from fabric_manager.domain.lifecycle import LIFECYCLE, PRECEDENCE, TERMINAL, Event, Phase, bucket

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def diagram() -> str:
    """Mermaid's stateDiagram; the events that lead from one phase to another share an arrow."""
    arrows: defaultdict[tuple[Phase, Phase], list[Event]] = defaultdict(list)
    for (before, event), after in LIFECYCLE.items():
        arrows[before, after].append(event)
    lines = ["stateDiagram-v2", f"  [*] --> {Phase.RESERVED}"]
    lines += [f"  {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    return "\n".join([*lines, f"  {Phase.RELEASED} --> [*]"])


def page() -> str:
    buckets = "\n".join(f"| `{p}` | {'holds nothing' if p in TERMINAL else bucket(p)} |" for p in Phase)
    return f"""# The life of a segment

Made from `fabric_manager/domain/lifecycle.py` by `python -m tests.unit.lifecycle_diagram`; a test compares them. A pair
of phase and event that is not in this picture is an error. The database holds the same table and refuses anything else.

```mermaid
{diagram()}
```

An allocation shows the first of these phases that any of its segments is in, and `released` when all are:
{", ".join(f"`{phase}`" for phase in PRECEDENCE)}.

| phase | its bytes are counted as |
|---|---|
{buckets}
"""


if __name__ == "__main__":
    PAGE.write_text(page())
