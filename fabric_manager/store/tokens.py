"""API tokens `fm_<id>_<secret>`: only their SHA-256 is stored. The secret is random, so no slow hash is needed."""

import hashlib
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal, Role
from fabric_manager.store.tables import api_token


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def insert(
    tx: AsyncConnection, *, token_id: UUID, hashed: bytes, owner: Principal, expires_at: datetime | None = None
) -> None:
    """Make the token valid. Inserting the same hash again changes nothing."""
    values = {
        "id": token_id,
        "name": owner.name,
        "hash": hashed,
        "role": str(owner.role),
        "tenant": owner.tenant,
        "cluster": owner.cluster,
        "host": owner.host,
        "expires_at": expires_at,
    }
    statement = sa.dialects.postgresql.insert(api_token).values(values)
    await tx.execute(statement.on_conflict_do_nothing(index_elements=["hash"]))


async def find(tx: AsyncConnection, hashed: bytes) -> Principal | None:
    """Whose token it is; None when it is unknown, expired or revoked."""
    query = sa.select(api_token).where(
        api_token.c.hash == hashed,
        api_token.c.revoked_at.is_(None),
        sa.or_(api_token.c.expires_at.is_(None), api_token.c.expires_at > sa.func.now()),
    )
    row = (await tx.execute(query)).one_or_none()
    if row is None:
        return None
    return Principal(name=row.name, role=Role(row.role), tenant=row.tenant, cluster=row.cluster, host=row.host)
