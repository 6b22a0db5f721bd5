"""`python -m fairlead` is the `fairlead` command."""

from fairlead.cli.main import main

if __name__ == "__main__":
    main()
