package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Account is the money of one owner; amounts are in cents.
type Account struct {
	Owner   string
	Balance int
	History []Entry
}

// Entry is one change.
type Entry struct {
	Kind   string
	Amount int
}

// Deposit adds an amount.
func (a *Account) Deposit(amount int) error {
	if amount <= 0 {
		return fmt.Errorf("cannot deposit %d", amount)
	}
	a.Balance += amount
	a.History = append(a.History, Entry{"deposit", amount})
	return nil
}

// Withdraw takes an amount; no credit is given.
func (a *Account) Withdraw(amount int) (int, error) {
	if amount > a.Balance {
		return a.Balance, errors.New("not enough money")
	}
	a.Balance -= amount
	a.History = append(a.History, Entry{"withdraw", amount})
	return a.Balance, nil
}

func main() {
	accounts := []*Account{{Owner: "a", Balance: 5}, {Owner: "b", Balance: 7}}
	totals := map[string]int{}
	for _, account := range accounts {
		if err := account.Deposit(10); err != nil {
			fmt.Println("failed:", err)
			continue
		}
		totals[strings.ToUpper(account.Owner)] += account.Balance
	}
	sort.Slice(accounts, func(i, j int) bool { return accounts[i].Balance < accounts[j].Balance })
	for owner, total := range totals {
		fmt.Printf("%s: %d\n", owner, total)
	}
}
