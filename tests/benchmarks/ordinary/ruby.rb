require 'json'
require 'set'

# Money of one owner; amounts are in cents.
class Account
  attr_reader :owner, :balance, :history

  def initialize(owner, balance = 0)
    @owner = owner
    @balance = balance
    @history = []
  end

  def deposit(amount)
    raise ArgumentError, "cannot deposit #{amount}" unless amount.positive?

    @balance += amount
    @history << { kind: :deposit, amount: amount }
  end

  def withdraw(amount)
    # No credit is given.
    raise 'not enough money' if amount > @balance

    @balance -= amount
    @history << { kind: :withdraw, amount: amount }
    @balance
  end
end

accounts = [Account.new('a', 5), Account.new('b', 7)]
accounts.each { |account| account.deposit(10) }
totals = accounts.group_by(&:owner).transform_values { |held| held.sum(&:balance) }
totals.sort_by { |_, total| -total }.each do |owner, total|
  puts format('%-10s %8.2f', owner.upcase, total / 100.0)
end

seen = Set.new(accounts.map(&:owner))
puts seen.include?('a') ? 'known' : 'unknown'
puts JSON.pretty_generate(accounts.map { |account| { owner: account.owner, history: account.history } })
