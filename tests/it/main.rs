//! End-to-end tests, one binary.
