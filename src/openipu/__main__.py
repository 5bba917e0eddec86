"""`python -m openipu`: the command `openipu` where the folder of commands is not on the path."""

from openipu.cli.main import main

if __name__ == "__main__":
    main(prog_name="openipu")
