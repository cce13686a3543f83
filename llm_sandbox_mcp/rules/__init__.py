"""Rules that check code before it runs. They prevent accidents only; the security boundary is the sandbox."""
