"""Software's handling of the sessions of an engine."""

from dxpu.fabric.session.types import SettingKind

__all__ = ["look_at", "open_anew", "set_mode", "set_tags"]


async def _set(ctx, engine, **setting):
    ctx.set(engine.setting.payload, setting)
    ctx.set(engine.setting.valid, 1)
    await ctx.tick().until(engine.setting.ready)
    ctx.set(engine.setting.valid, 0)


async def set_tags(ctx, engine, tx, rx, *, session=0):
    """Set up a session that software opens."""
    await _set(ctx, engine, kind=SettingKind.TAGS, session=session, tx_tag=tx, rx_tag=rx)


async def set_mode(ctx, engine, mode, *, session=0):
    await _set(ctx, engine, kind=SettingKind.MODE, session=session, mode=mode)


async def open_anew(ctx, engine, *, session=0):
    await _set(ctx, engine, kind=SettingKind.OPEN, session=session)


async def look_at(ctx, engine, session=0):
    """The session's :class:`~dxpu.fabric.session.types.SessionView`."""
    ctx.set(engine.view_session, session)
    ctx.set(engine.view_request, 1)
    shown, = await ctx.tick().sample(engine.session_view).until(engine.view_done)
    ctx.set(engine.view_request, 0)
    await ctx.tick()
    return shown
