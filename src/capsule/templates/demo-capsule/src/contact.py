"""Contacts: who they are and how to reach them.

Feature gap: there is no `validate_email` yet, so any text passes for an address.
Contacts are kept as typed; nothing here changes what a user entered.
Feature gap: there is no `validate_phone` yet, so any text passes for a number.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contact:
    """One person, and how to reach them."""

    name: str
    email: str
    phone: str = ""

    def label(self) -> str:
        """The contact in one line, as lists show it."""
        reachable = f"{self.name} <{self.email}>"
        return f"{reachable}, {self.phone}" if self.phone else reachable


def main() -> None:
    print(Contact("Ada Lovelace", "ada@example.com", "+44 20 7946 0958").label())


if __name__ == "__main__":
    main()
