//! The parts of the process that work as long as it lives.

use std::any::Any;
use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Tasks with their names; all are stopped when this is dropped.
#[derive(Debug, Default)]
pub struct Parts {
    tasks: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, String>,
}

impl Parts {
    /// Starts one.
    pub fn spawn(
        &mut self,
        name: impl Into<String>,
        part: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(part).id();
        self.names.insert(id, name.into());
    }

    /// Starts one that ends by nothing but a defect.
    pub fn spawn_endless(
        &mut self,
        name: impl Into<String>,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, async {
            part.await;
            Ok(())
        });
    }

    /// Waits for the first that ends, in whatever way: its name, and why. For ever if there is none.
    pub async fn first_end(&mut self) -> (String, String) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let (id, why) = match ended {
            Ok((id, Ok(()))) => (id, "it has nothing more to do".to_owned()),
            Ok((id, Err(error))) => (id, format!("{error:#}")),
            Err(error) => {
                (error.id(), error.try_into_panic().map_or_else(|e| e.to_string(), |panic| text(&*panic)))
            }
        };
        (self.names.remove(&id).unwrap_or_default(), why)
    }
}

/// What a panic said.
pub fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch or a worker that had ended left the process ready, healthy and leading, with nobody at work.
    #[tokio::test]
    async fn the_first_part_that_ends_is_named_with_its_reason() {
        async fn forever() -> anyhow::Result<()> {
            std::future::pending().await
        }
        for (how, why) in
            [("panic", "index out of range"), ("error", "no port: in use"), ("end", "nothing more")]
        {
            let mut parts = Parts::default();
            parts.spawn("sweep", forever());
            parts.spawn("watch of jobs", async move {
                match how {
                    "panic" => panic!("index out of range"),
                    "error" => Err(anyhow::anyhow!("in use").context("no port")),
                    _ => Ok(()),
                }
            });
            parts.spawn("server", forever());
            let (part, said) = parts.first_end().await;
            assert!(part == "watch of jobs" && said.contains(why), "{part}: {said}");
        }
    }
}
