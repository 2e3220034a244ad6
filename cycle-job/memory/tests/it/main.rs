//! The engine from outside: real children, real files.

mod attacks;
mod corrupt;
mod faults;
mod kills;
mod path;
mod prompt;
mod repair;
mod support;
