"""What the documents say is what the code does: tables, names, links and paths are compared."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fabric_manager.api.problems import PROBLEMS
from fabric_manager.cli.serve import serve
from fabric_manager.domain.errors import VERDICTS, Code
from fabric_manager.settings import Settings, variable
from fabric_manager.store.alarms import RULES
from fabric_manager.store.tables import metadata
from fabric_manager.telemetry import metrics

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fabric_manager"
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
REGISTRIES = ("pypi", "index-url", "npmjs", "artifactory")
MACHINE_PATHS = ("/home/", "/root/", "/tmp/")
ABSENT = "none"

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def rows(page: Path, *, header: str) -> Iterator[list[str]]:
    """The cells of the one table of `page` whose first column is called `header`, without backticks."""
    _, found, after = page.read_text().partition(f"\n| {header} |")
    assert found, f"{page.name} has no table that begins with {header}"
    for line in after.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


def test_the_settings_page_is_the_settings() -> None:
    told = {
        name: (its_variable, default) for name, its_variable, default, _ in rows(DOCS / "settings.md", header="setting")
    }
    assert told == {
        each.name: (variable(each.name), ABSENT if each.default is None else str(each.default))
        for each in fields(Settings)
    }


def test_the_metrics_page_has_every_metric() -> None:
    told = {
        name: (kind, [label.strip("` ") for label in labels.split(",") if label])
        for name, kind, labels, *_ in rows(DOCS / "metrics.md", header="metric")
    }
    counted = {}
    for collector in set(metrics.PROCESS._collector_to_names):
        labels = list(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            name = family.name + "_total" * (family.type == "counter")
            counted[name] = (family.type, labels)
    read = {reading.name: (reading.kind, list(reading.labels)) for reading in metrics.READINGS}
    assert told == counted | read


def test_the_readme_has_every_option_of_serve() -> None:
    told = {
        option: (its_variable, default)
        for option, its_variable, default, _ in rows(ROOT / "README.md", header="option")
    }
    defaults = {each.name: each.default for each in fields(Settings)}
    assert told == {
        "--" + str(param.name).replace("_", "-"): (
            param.envvar,
            ABSENT if defaults[str(param.name)] is None else str(defaults[str(param.name)]),
        )
        for param in serve.params
    }


def test_the_problems_page_has_every_code() -> None:
    told = {code: facts for code, *facts, _, _ in rows(DOCS / "problems.md", header="code")}
    assert told == {
        str(code): [
            str(PROBLEMS[code].status),
            "yes" if VERDICTS[code].retryable else "no",
            VERDICTS[code].terminal_for or "–",
        ]
        for code in Code
    }


def test_every_direct_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for group in project["dependency-groups"].values():
        wanted += [requirement for requirement in group if isinstance(requirement, str)]
    names = {re.split(r"[\[;<>=! ]", requirement, maxsplit=1)[0] for requirement in wanted}
    told = re.findall(r"^- `([^`]+)`: \S", (DOCS / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(names)


def test_the_glossary_has_every_table_and_every_folder() -> None:
    glossary = (DOCS / "glossary.md").read_text()
    folders = {f"{init.parent.relative_to(PACKAGE)}/" for init in PACKAGE.rglob("*/__init__.py")}
    missing = {name for name in {*metadata.tables, *folders} if f"`{name}`" not in glossary}
    assert not missing


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    paths = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
    assert [path for path in paths if path and not (page.parent / path).exists()] == []


@every_page
def test_every_name_in_the_code_is_there(page: Path) -> None:
    """`folder/file.py:name` is a name in that file; paths begin at the root or at the package."""
    named = re.findall(r"`([\w./-]+\.(?:py|sql|toml|yaml))(?::(\w+))?`", page.read_text())
    for path, name in named:
        file = next((base / path for base in (ROOT, PACKAGE) if (base / path).is_file()), None)
        assert file is not None or "/" not in path, f"there is no {path}"
        assert not name or (file is not None and re.search(rf"\b{name}\b", file.read_text())), f"no {name} in {path}"


def test_the_promises_name_constraints_that_exist() -> None:
    sources = [PACKAGE / "store" / "tables.py", *(PACKAGE / "store" / "sql").glob("*.sql")]
    schema = "\n".join(source.read_text() for source in sources)
    for promise, database, _, _ in rows(DOCS / "ARCHITECTURE.md", header="promise"):
        for name in re.findall(r"\w+_\w+", re.sub(r"\S+:", "", database)):
            assert name in schema, f"{promise}: there is no {name}"


@every_page
def test_the_text_speaks_of_the_product_alone(page: Path) -> None:
    text = page.read_text().lower()
    assert [word for word in (*REGISTRIES, *MACHINE_PATHS) if word in text] == []


def test_every_alarm_has_its_runbook() -> None:
    told = re.findall(r"^## (\S+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted({rule.kind.replace("_", "-") for rule in RULES})
