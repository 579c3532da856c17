import time, asyncio, pytest, sqlalchemy as sa, traceback, asyncpg, greenlet, gc
from fabric_manager.store.database import Database
from tests.external_postgres import external_postgres
async def test_x(external_postgres, monkeypatch):
    db = Database(external_postgres.url)
    async with db.transaction() as tx: await tx.execute(sa.text("select 1"))
    external_postgres.pause()
    async def work():
        async with db.transaction() as tx:
            await tx.execute(sa.text("select 1"))
    t=asyncio.create_task(work())
    for i in range(5):
        await asyncio.sleep(0.9)
        print(i)
        t.print_stack()
        for o in gc.get_objects():
            if isinstance(o, greenlet.greenlet) and o.gr_frame: print("".join(traceback.format_stack(o.gr_frame)[-6:]))
        for u in asyncio.all_tasks():
            if u is not t: print(u.get_coro())
    external_postgres.resume()
    try: await t
    except Exception as e: print(e)
    await db.close()
