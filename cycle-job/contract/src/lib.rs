//! What the operator tells a cycle ([`plan`]) and what a cycle answers ([`report`]), with the
//! failure classes ([`class`]) and the resource numbers ([`resources`]) that both sides share.
//!
//! Only serde types and pure functions: no input or output, no clock, no Kubernetes client.
//!
//! ## Why
//! Operator and cycle job are two binaries of one release, but during an upgrade an old one meets a
//! new one. Everything they say to each other is therefore in this one crate, carries
//! [`plan::PLAN_VERSION`], and only ever gains optional fields.

pub mod attachment;
pub mod class;
pub mod plan;
pub mod report;
pub mod resources;
pub mod text;

pub use attachment::Attachment;
pub use class::{Ending, FailureClass};
pub use plan::{CyclePlan, PlanConfig, PlanRun};
pub use report::CycleReport;
