"""What things cost."""

from __future__ import annotations

import unittest

from shop.prices import total


class TotalTest(unittest.TestCase):
    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0)

    def test_prices_are_added_up(self) -> None:
        self.assertEqual(total([250, 120]), 370)


if __name__ == "__main__":
    unittest.main()
