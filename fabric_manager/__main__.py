"""`python -m fabric_manager` is the command `fabric-manager`."""

from fabric_manager.cli import main

if __name__ == "__main__":
    main(prog_name="fabric-manager")
