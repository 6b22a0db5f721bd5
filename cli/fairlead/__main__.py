"""`python -m fairlead` is the `fairlead` command."""

from fairlead.cli.programs.start import main

if __name__ == "__main__":
    main()
