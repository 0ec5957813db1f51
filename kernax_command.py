"""The command `kernax`, outside the package: to import that takes seconds, in which Control-C shall
leave no traceback.
"""

import os
import signal


def main() -> None:
    """Runs the command line; an interrupt while it is imported ends the process with 130, as one
    later does.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # and not ignored, as in the background of a shell
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from kernax.__main__ import command

    run = command()
    signal.signal(signal.SIGINT, usual)
    run(prog_name="kernax")


if __name__ == "__main__":
    main()
