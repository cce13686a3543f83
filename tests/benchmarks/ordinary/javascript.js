// Money of one owner; amounts are in cents.
class Account {
  constructor(owner, balance = 0) {
    this.owner = owner;
    this.balance = balance;
    this.history = [];
  }

  deposit(amount) {
    if (amount <= 0) {
      throw new RangeError(`cannot deposit ${amount}`);
    }
    this.balance += amount;
    this.history.push({ kind: 'deposit', amount });
  }

  withdraw(amount) {
    // No credit is given.
    if (amount > this.balance) throw new Error('not enough money');
    this.balance -= amount;
    this.history.push({ kind: 'withdraw', amount });
    return this.balance;
  }
}

const accounts = [new Account('a', 5), new Account('b', 7)];
accounts.forEach((account) => account.deposit(10));
const totals = accounts.reduce((sum, { owner, balance }) => ({ ...sum, [owner]: (sum[owner] ?? 0) + balance }), {});

async function report(entries) {
  const lines = Object.entries(entries)
    .sort(([, a], [, b]) => b - a)
    .map(([owner, total]) => `${owner.toUpperCase()}: ${total.toFixed(2)}`);
  await Promise.resolve();
  for (const line of lines) {
    console.log(line);
  }
  return lines.length;
}

report(totals).then((count) => console.log('lines', count)).catch((error) => console.error(error.message));
console.log(JSON.stringify(accounts.map((account) => account.history), null, 2));
