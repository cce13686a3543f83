"""Money of a few owners; amounts are in cents."""

import json
import math
from collections import defaultdict


class Account:
    """Money of one owner."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError(f"cannot deposit {amount}")
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        # No credit is given.
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance -= amount
        self.history.append(("withdraw", amount))
        return self.balance


accounts = [Account("a", 5), Account("b", 7)]
totals = defaultdict(int)
for account in accounts:
    account.deposit(10)
    totals[account.owner] += account.balance
mean = sum(totals.values()) / len(totals)
spread = math.sqrt(sum((value - mean) ** 2 for value in totals.values()) / len(totals))
for owner, total in sorted(totals.items(), key=lambda pair: -pair[1]):
    print(f"{owner.upper():<10} {total / 100:8.2f}")
print(json.dumps({"mean": mean, "spread": spread, "history": [account.history for account in accounts]}))
