"""Read what hardware shows of one segment. Changes nothing."""

from fabric_manager.domain.lifecycle import Phase
from fabric_manager.reconciler.plan import Place, Seen, Wanted
from fabric_manager.southbound.driver import FabricDriver, VppbFacts


async def observe(wanted: Wanted, driver: FabricDriver) -> Seen:
    """The vPPB, and for dynamic capacity the extents of the segment's tag. Raises DriverError."""
    place = wanted.place
    if place is None or (wanted.kind != "dcd" and wanted.phase is Phase.SANITIZING):
        return Seen()  # its vPPB is no longer ours to look at
    vppb = await read_vppb(driver, place)
    if wanted.kind != "dcd" or place.ld_id is None:
        return Seen(vppb=vppb)
    # The life of the device first: extents that vanish with a restart must not look as if they were given back.
    background = await driver.device_background(wanted.serial)
    extents = await driver.read_extents(wanted.serial, host_ld=place.ld_id)
    mine = tuple(extent for extent in extents if extent.tag == wanted.segment_id)
    return Seen(vppb=vppb, extents=mine, device_background=background)


async def read_vppb(driver: FabricDriver, place: Place) -> VppbFacts | None:
    facts = await driver.read_vcs(place.switch, vcs=place.vcs)
    return next((vppb for vppb in facts.vppbs if vppb.number == place.vppb), None)
