# Money of a few owners; amounts are in cents.
set.seed(1)
accounts <- data.frame(
  owner = rep(c("a", "b", "c"), each = 20),
  amount = round(rnorm(60, mean = 100, sd = 25)),
  kind = sample(c("deposit", "withdraw"), 60, replace = TRUE)
)

signed <- function(amount, kind) {
  if (!all(kind %in% c("deposit", "withdraw"))) {
    stop("unknown kind: ", paste(setdiff(kind, c("deposit", "withdraw")), collapse = ", "))
  }
  ifelse(kind == "deposit", amount, -amount)
}

accounts$change <- signed(accounts$amount, accounts$kind)
totals <- aggregate(change ~ owner, data = accounts, FUN = sum)
totals <- totals[order(-totals$change), ]
print(totals)

balance <- function(owner) {
  changes <- accounts$change[accounts$owner == owner]
  # No credit is given.
  running <- cumsum(changes)
  running[running < 0] <- 0
  running
}

for (owner in unique(accounts$owner)) {
  held <- balance(owner)
  cat(sprintf("%s: mean %.2f, most %.2f\n", owner, mean(held), max(held)))
}

fit <- lm(amount ~ kind + owner, data = accounts)
print(summary(fit)$coefficients[, 1:2])
quartiles <- sapply(split(accounts$amount, accounts$owner), quantile, probs = c(0.25, 0.5, 0.75))
print(round(t(quartiles), 1))
hist(accounts$amount, main = "Amounts", xlab = "cents", col = "grey")
