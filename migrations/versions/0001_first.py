"""Everything the first release needs; the exclusion constraints cannot be added later without a rewrite."""

from pathlib import Path

from alembic import op

from fabric_manager.store.schema import drop_everything, install_functions, run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script(op, Path(__file__).with_suffix(".sql").read_text())
    install_functions(op)


def downgrade() -> None:
    drop_everything(op)
