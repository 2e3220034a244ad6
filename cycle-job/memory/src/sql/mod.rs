//! Reading SQL text without SQLite: tokens, statements, words, repairs.

pub mod nearest;
pub mod repair;
pub(crate) mod split;
pub mod tokens;
