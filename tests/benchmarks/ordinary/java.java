import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Money of one owner; amounts are in cents. */
class Account {
    private final String owner;
    private long balance;
    private final List<String> history = new ArrayList<>();

    Account(String owner, long balance) {
        this.owner = owner;
        this.balance = balance;
    }

    void deposit(long amount) {
        if (amount <= 0) {
            throw new IllegalArgumentException("cannot deposit " + amount);
        }
        balance += amount;
        history.add("deposit " + amount);
    }

    long withdraw(long amount) {
        // No credit is given.
        if (amount > balance) {
            throw new IllegalStateException("not enough money");
        }
        balance -= amount;
        history.add("withdraw " + amount);
        return balance;
    }

    String owner() {
        return owner;
    }

    long balance() {
        return balance;
    }
}

public class Main {
    public static void main(String[] args) {
        List<Account> accounts = new ArrayList<>(List.of(new Account("a", 5), new Account("b", 7)));
        accounts.forEach(account -> account.deposit(10));
        accounts.sort(Comparator.comparingLong(Account::balance));
        Map<String, Long> totals = accounts.stream()
            .collect(Collectors.groupingBy(Account::owner, Collectors.summingLong(Account::balance)));
        totals.forEach((owner, total) -> System.out.printf("%s: %d%n", owner, total));
    }
}
