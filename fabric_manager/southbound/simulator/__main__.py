"""`python -m fabric_manager.southbound.simulator --state DIR --rack FILE`: a rack without the rest of the service."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from fabric_manager.southbound.simulator.keeping import StateDirectoryInUseError
from fabric_manager.southbound.simulator.server import serve_rack
from fabric_manager.southbound.simulator.topology import RackFileError


def main() -> int:
    parser = argparse.ArgumentParser(prog="fabric-manager simulate")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--rack", type=Path, required=True)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve_rack(state_dir=options.state, rack_file=options.rack, seed=options.seed))
    except (StateDirectoryInUseError, RackFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
