import unittest

import greet


class GreetingTest(unittest.TestCase):
    def test_everybody_is_greeted(self) -> None:
        self.assertEqual(greet.greeting(), "Hello!")
