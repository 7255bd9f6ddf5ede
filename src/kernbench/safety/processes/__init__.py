"""A launch in several processes: units handed out, copies that go on by themselves, and what they would lose."""
