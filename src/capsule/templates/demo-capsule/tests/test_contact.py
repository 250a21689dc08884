"""What a contact promises."""

from __future__ import annotations

import dataclasses
import unittest

from src import contact


class ContactTest(unittest.TestCase):
    def test_label_shows_name_and_address(self) -> None:
        self.assertEqual(contact.Contact("Ada", "ada@example.com").label(), "Ada <ada@example.com>")

    def test_label_ends_with_the_phone_where_there_is_one(self) -> None:
        ada = contact.Contact("Ada", "ada@example.com", "+44 20 7946 0958")
        self.assertEqual(ada.label(), "Ada <ada@example.com>, +44 20 7946 0958")

    def test_a_contact_cannot_be_changed(self) -> None:
        ada = contact.Contact("Ada", "ada@example.com")
        with self.assertRaises(dataclasses.FrozenInstanceError):
            ada.name = "Grace"  # type: ignore[misc]


if __name__ == "__main__":
    unittest.main()
