"""All that people declared, as one document."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


async def export(tx: AsyncConnection) -> tuple[dict[str, Any], str]:
    """The document in the form that apply_inventory takes, and the digest that tells its state from another."""
    row = (await tx.execute(sa.text("SELECT export_inventory('{}') AS whole, inventory_digest() AS digest"))).one()
    return dict(row.whole), str(row.digest)
