//! Reading SQL text without SQLite: tokens, statements, words.

pub(crate) mod split;
pub mod tokens;
