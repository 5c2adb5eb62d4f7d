"""What goes wrong."""


class Error(Exception):
    """Something that whoever called can repair: bad data, wrong arguments, too little memory.

    Attributes:
        hint: what to do about it; may be empty.
        exit_code: what the program ``lumen`` would have ended with: 1 bad data, 2 wrong arguments, 3 hardware or memory,
            4 numbers that are not finite, 5 a check that failed.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message} (hint: {self.hint})" if self.hint else message

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:
        return type(self), (self.args[0], self.hint, self.exit_code)
