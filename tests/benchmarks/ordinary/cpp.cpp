#include <algorithm>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// Money of one owner; amounts are in cents.
class Account {
 public:
  Account(std::string owner, long balance) : owner_(std::move(owner)), balance_(balance) {}

  void deposit(long amount) {
    if (amount <= 0) {
      throw std::invalid_argument("cannot deposit " + std::to_string(amount));
    }
    balance_ += amount;
    history_.push_back({"deposit", amount});
  }

  long withdraw(long amount) {
    // No credit is given.
    if (amount > balance_) throw std::runtime_error("not enough money");
    balance_ -= amount;
    history_.push_back({"withdraw", amount});
    return balance_;
  }

  long balance() const { return balance_; }
  const std::string& owner() const { return owner_; }

 private:
  std::string owner_;
  long balance_;
  std::vector<std::pair<std::string, long>> history_;
};

int main() {
  std::vector<Account> accounts = {{"a", 5}, {"b", 7}};
  std::map<std::string, long> totals;
  for (auto& account : accounts) {
    account.deposit(10);
    totals[account.owner()] += account.balance();
  }
  std::sort(accounts.begin(), accounts.end(), [](const auto& x, const auto& y) { return x.balance() < y.balance(); });
  for (const auto& [owner, total] : totals) std::cout << owner << ": " << total << '\n';
  return 0;
}
