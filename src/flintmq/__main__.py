"""``python -m flintmq`` and ``flintmq``: where a process of the command line begins."""

from flintmq.cli.collector_pause import collector_paused


def main() -> None:
    """Run the command line of this process."""
    with collector_paused():
        from flintmq.cli.main import main as run_main
    run_main()


if __name__ == "__main__":
    main()
