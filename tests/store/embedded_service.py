"""A stand-in for `serve`: holds one data directory and its database until stdin closes. Run by path or with -m.

    embedded_service.py DATA_DIR

It prints one line of JSON: {"url"} when it is ready, {"error"} when it cannot be.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path

from fabric_manager.store.embedded import DataDirectoryInUseError, DataDirectoryLock, EmbeddedPostgres, LauncherError


async def serve(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir=data_dir, log=logging.getLogger("service"), durable=False) as postgres:
        print(json.dumps({"url": postgres.url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(data_dir: Path) -> None:
    logging.basicConfig(level=logging.INFO)
    try:
        with DataDirectoryLock(data_dir):
            asyncio.run(serve(data_dir))
    except (DataDirectoryInUseError, LauncherError) as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
