//! The engine from outside: real children, real files.

mod path;
mod support;
