"""``flintmq context``: clusters by name, so that no command needs addresses and keys."""

from __future__ import annotations

from pathlib import Path

import click

from flintmq.cli.contexts.context_file import (
    Context,
    ContextError,
    ContextFile,
    client_options,
    read_credentials,
)
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_NOT_FOUND
from flintmq.cli.output.console import write_line
from flintmq.cli.output.plain_table import table_lines


@click.group("context")
def context_group() -> None:
    """Name clusters, and choose the one that commands speak to.

    Secrets are never given on the command line: they stand in a file that only its owner may read
    (--credentials-file), or in FLINTMQ_ACCESS_KEY and FLINTMQ_SECRET_KEY of the environment.
    """


@context_group.command("add")
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="ADDRS", help="Name servers, ; between.")
@click.option(
    "--credentials-file",
    type=click.Path(dir_okay=False, resolve_path=True),
    help="YAML with accessKey and secretKey; mode 600.",
)
@click.option("--tls", is_flag=True, help="Speak TLS.")
@click.option("--tls-ca-file", type=click.Path(resolve_path=True), help="Whom to trust.")
@click.option("--tls-cert-file", type=click.Path(resolve_path=True), help="Own certificate.")
@click.option("--tls-key-file", type=click.Path(resolve_path=True), help="Its key.")
@click.option("--tls-any-hostname", is_flag=True, help="Take any trusted certificate.")
@click.option("--use", is_flag=True, help="Make it the current context.")
def add_context(
    name: str,
    namesrv: str,
    credentials_file: str | None,
    tls: bool,
    tls_ca_file: str | None,
    tls_cert_file: str | None,
    tls_key_file: str | None,
    tls_any_hostname: bool,
    use: bool,
) -> int:
    """Add a context, or replace the one of that name; the first becomes the current one."""
    if credentials_file is not None:
        read_credentials(Path(credentials_file))
    file = ContextFile.read()
    file.put(
        name,
        Context(
            namesrv=namesrv,
            credentials_file=credentials_file,
            tls=tls or bool(tls_ca_file or tls_cert_file),
            tls_ca_file=tls_ca_file,
            tls_cert_file=tls_cert_file,
            tls_key_file=tls_key_file,
            tls_check_hostname=not tls_any_hostname,
        ),
    )
    client_options(namesrv=namesrv)
    if use or file.current is None:
        file.current = name
    file.write()
    write_line(f"{name}: {namesrv}{' (current)' if file.current == name else ''}")
    return EXIT_FINE


@context_group.command("use")
@click.argument("name")
def use_context(name: str) -> int:
    """Make a context the current one."""
    file = ContextFile.read()
    try:
        context = file.get(name)
    except ContextError as error:
        click.echo(f"flintmq: {error}", err=True)
        return EXIT_NOT_FOUND
    file.current = name
    file.write()
    write_line(f"{name}: {context.namesrv} (current)")
    return EXIT_FINE


@context_group.command("list")
def list_contexts() -> int:
    """List all contexts; a star marks the current one.  No secret is shown."""
    file = ContextFile.read()
    rows = [
        {
            "current": "*" if name == file.current else "",
            "name": name,
            "namesrv": one.namesrv,
            "credentialsFile": one.credentials_file,
            "tls": one.tls,
        }
        for name, one in sorted(file.contexts.items())
    ]
    for line in table_lines(rows, ["current", "name", "namesrv", "credentialsFile", "tls"]):
        write_line(line)
    return EXIT_FINE


@context_group.command("remove")
@click.argument("name")
def remove_context(name: str) -> int:
    """Forget a context; the file with its keys stays."""
    file = ContextFile.read()
    try:
        file.get(name)
    except ContextError as error:
        click.echo(f"flintmq: {error}", err=True)
        return EXIT_NOT_FOUND
    del file.contexts[name]
    if file.current == name:
        file.current = None
    file.write()
    return EXIT_FINE
