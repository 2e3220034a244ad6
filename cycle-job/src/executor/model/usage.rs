//! Spend: tokens and cost of every call, and the budgets that they are held against.

use cicada_contract::plan::{Limits, Prices};
use cicada_contract::report::Usage;

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Input, cached ones included.
    pub input: u64,
    /// Input that came from the provider's cache.
    pub cached: u64,
    /// Output, reasoning included.
    pub output: u64,
}

impl Tokens {
    /// What a call probably took whose answer never arrived whole: its input at four bytes a token. The
    /// provider bills such calls, so counting nothing would let a budget be passed.
    pub fn guess(request_bytes: usize) -> Self {
        Self { input: request_bytes as u64 / 4, cached: 0, output: 0 }
    }

    /// Cost at `prices`, in their currency.
    pub fn cost(&self, prices: &Prices) -> f64 {
        let per_million = |tokens: u64, price: f64| {
            #[expect(clippy::cast_precision_loss, reason = "a token count is far below 2^53")]
            let tokens = tokens as f64;
            tokens * price / 1_000_000.0
        };
        let fresh = self.input.saturating_sub(self.cached);
        per_million(fresh, prices.input)
            + per_million(self.cached, prices.cached_input)
            + per_million(self.output, prices.output)
    }
}

/// Adds one model call to the spend of a cycle.
pub fn add_call(usage: &mut Usage, tokens: Tokens, prices: Option<&Prices>) {
    usage.model_calls += 1;
    usage.input_tokens += tokens.input;
    usage.cached_input_tokens += tokens.cached;
    usage.output_tokens += tokens.output;
    usage.cost += prices.map_or(0.0, |p| tokens.cost(p));
}

/// What was spent before this attempt began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpentBefore {
    /// Tokens of the day, input and output.
    pub tokens_today: u64,
    /// Cost of the day.
    pub cost_today: f64,
    /// Outgoing messages of the day.
    pub messages_today: u32,
    /// Model calls of earlier attempts of this cycle.
    pub cycle_model_calls: u32,
    /// Tool calls of earlier attempts of this cycle.
    pub cycle_tool_calls: u32,
    /// Tokens of earlier attempts of this cycle.
    pub cycle_tokens: u64,
}

/// The limit that forbids another model call, by its name in the manifest.
pub fn reached(limits: &Limits, before: &SpentBefore, usage: &Usage) -> Option<&'static str> {
    let tokens = usage.input_tokens + usage.output_tokens;
    let over = |limit: u64, spent: u64| limit > 0 && spent >= limit;
    if over(limits.tokens_per_day, before.tokens_today + tokens) {
        Some("tokensPerDay")
    } else if limits.cost_per_day > 0.0 && before.cost_today + usage.cost >= limits.cost_per_day {
        Some("costPerDay")
    } else if over(limits.tokens_per_cycle, before.cycle_tokens + tokens) {
        Some("tokensPerCycle")
    } else if over(limits.max_model_calls.into(), u64::from(before.cycle_model_calls + usage.model_calls)) {
        Some("maxModelCalls")
    } else {
        None
    }
}

/// True for a limit of a day: reached before the first call it fails the cycle as `budget_exceeded`.
pub fn is_daily(limit: &str) -> bool {
    matches!(limit, "tokensPerDay" | "costPerDay")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices { input: 3.0, cached_input: 0.3, output: 15.0 };

    #[test]
    fn cached_tokens_cost_their_own_price() {
        let tokens = Tokens { input: 1_000_000, cached: 400_000, output: 100_000 };
        assert!((tokens.cost(&PRICES) - (1.8 + 0.12 + 1.5)).abs() < 1e-9);
    }

    #[test]
    fn each_limit_ends_the_work_and_zero_means_none() {
        let none = Limits {
            max_model_calls: 0,
            tokens_per_cycle: 0,
            tokens_per_day: 0,
            cost_per_day: 0.0,
            ..Limits::default()
        };
        let usage =
            Usage { model_calls: 10, input_tokens: 90, output_tokens: 10, cost: 1.0, ..Usage::default() };
        let before = SpentBefore::default();
        assert_eq!(reached(&none, &before, &usage), None);
        for (limits, name) in [
            (Limits { max_model_calls: 10, ..none.clone() }, "maxModelCalls"),
            (Limits { tokens_per_cycle: 100, ..none.clone() }, "tokensPerCycle"),
            (Limits { tokens_per_day: 100, ..none.clone() }, "tokensPerDay"),
            (Limits { cost_per_day: 1.0, ..none.clone() }, "costPerDay"),
        ] {
            assert_eq!(reached(&limits, &before, &usage), Some(name));
        }
    }

    #[test]
    fn spend_of_killed_attempts_counts() {
        let limits = Limits { max_model_calls: 3, ..Limits::default() };
        let before = SpentBefore { cycle_model_calls: 2, ..SpentBefore::default() };
        let usage = Usage { model_calls: 1, ..Usage::default() };
        assert_eq!(reached(&limits, &before, &usage), Some("maxModelCalls"));
        assert_eq!(reached(&limits, &SpentBefore::default(), &usage), None);
    }
}
