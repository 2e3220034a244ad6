//! The engine from outside: real children, real files.

mod attacks;
mod path;
mod prompt;
mod support;
