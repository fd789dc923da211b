"""``weft cache``."""

from __future__ import annotations

import click

from weft.cli.common import console
from weft.support.words import counted


@click.group("cache", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show or clear the cache of compiled kernels.

    \b
    weft cache            show directory, size and number of kernels
    weft cache clear      remove everything

    WEFT_CACHE_DIR sets its directory, WEFT_CACHE_LIMIT its largest size.
    """
    if ctx.invoked_subcommand is not None:
        return
    from weft.api import kernel_disk_cache

    stats = kernel_disk_cache().stats()
    screen = console()
    screen.print(f"directory  {stats.directory}")
    screen.print(f"kernels    {stats.entries}")
    screen.print(f"size       {stats.bytes / 1e6:.1f} MB of at most {stats.limit / 1e6:.0f} MB")


@command.command()
def clear() -> None:
    """Remove every cached kernel."""
    from weft.api import kernel_disk_cache

    cache = kernel_disk_cache()
    count = cache.stats().entries
    cache.clear()
    click.echo(f"removed {counted(count, 'kernel')}")
