"""The one error that is the user's to mend."""


class InputError(ValueError):
    """Bad input, said in one line: where it is, what was found, what was expected.

    The command line prints it and exits with 2; any other exception is a defect of ours.
    """
