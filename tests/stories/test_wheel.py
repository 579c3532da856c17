"""What is installed works without the checkout: migrations and examples travel in the wheel."""

import subprocess
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.services import ROOT, Service, environment_without_settings


def installed(directory: Path) -> Path:
    """A new environment with our wheel; its dependencies are borrowed from this one. Answers its python."""
    wheels, environment = directory / "wheels", directory / "environment"
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels), at=ROOT)
    (wheel,) = wheels.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(environment), at=directory)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), at=directory)
    purelib = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", at=directory)
    # Files in a directory that a .pth names are found; .pth files in it, such as our own editable one, are not read.
    (Path(purelib.strip()) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run(*command: str, at: Path) -> str:
    done = subprocess.run(
        command, cwd=at, env=environment_without_settings(), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_the_installed_wheel_migrates_and_serves(
    tmp_path: Path, new_empty_database: Callable[[], Awaitable[str]]
) -> None:
    python = installed(tmp_path)
    where = run(str(python), "-c", "import fabric_manager; print(fabric_manager.__file__)", at=tmp_path)
    assert str(tmp_path) in where
    url = await new_empty_database()
    run(str(python), "-m", "fabric_manager", "migrate", "--database-url", url, at=tmp_path)
    service = Service(tmp_path / "data", python=str(python))
    service.start()
    with service.caller() as caller:
        wish = {"tenant": "t", "size_bytes": 1, "host": "node-0", "pool": "high-performance"}
        assert caller.put("from-a-wheel", wish, wait_s=20)["phase"] == "bound"
    service.stop()
