"""A Python client that a public generator makes from the committed description, against the real service."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.services import ROOT, Service

NAME = "generated_fabric_manager"
CONFIG = {
    "project_name_override": NAME,
    "package_name_override": NAME,
    "post_hooks": [],
    # `"{` in an example of a multi-line string is not the generator's strongest side
    "docstrings_on_attributes": False,
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that holds the generated package."""
    directory = tmp_path_factory.mktemp("generated")
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"),
            *("--path", str(ROOT / "openapi" / "fabric-manager.yaml"), "--config", str(config)),
            *("--output-path", str(directory / NAME)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(directory))
    yield directory
    sys.path.remove(str(directory))
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def part(path: str) -> ModuleType:
    return importlib.import_module(f"{NAME}.{path}")


def test_every_module_of_it_compiles_and_imports(generated: Path) -> None:
    modules = sorted(generated.joinpath(NAME).rglob("*.py"))
    assert len(modules) > 50
    for module in modules:
        importlib.import_module(".".join(module.relative_to(generated).with_suffix("").parts))


def test_it_puts_gets_lists_and_deletes(generated: Path, service: Service) -> None:
    models, calls = part("models"), "api.allocate_memory"
    client = part("client").AuthenticatedClient(base_url=service.url, token=service.token)
    wish = models.AllocationRequest(tenant="analytics", size_bytes=64 << 30, pool="high-performance", host="node-3")

    made = part(f"{calls}.put_allocation").sync_detailed("generated", client=client, body=wish, prefer="wait=20")
    assert made.status_code == 201
    assert (made.parsed.phase, made.parsed.granted_bytes) == (models.Phase.BOUND, 64 << 30)

    seen = part(f"{calls}.get_allocation").sync("generated", client=client)
    assert (seen.id, seen.host) == (made.parsed.id, "node-3")

    listed = part(f"{calls}.list_allocations").sync(client=client, tenant="analytics", phase=[models.Phase.BOUND])
    assert [item.key for item in listed.items] == ["generated"]

    too_much = models.AllocationRequest(tenant="analytics", size_bytes=1 << 50)
    refused = part(f"{calls}.put_allocation").sync("too-much", client=client, body=too_much)
    assert (refused.code, refused.terminal_for) == ("insufficient_capacity", "placement")

    gone = part(f"{calls}.delete_allocation").sync_detailed("generated", client=client, prefer="wait=20")
    assert gone.status_code == 204
