//! Progress of long work, on a terminal only: nothing is drawn into a pipe or a file.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a bar looks at the file that it follows.
const LOOK: Duration = Duration::from_millis(100);

/// All lines that are drawn now: several agents may be at work.
fn lines() -> &'static MultiProgress {
    static LINES: OnceLock<MultiProgress> = OnceLock::new();
    LINES.get_or_init(MultiProgress::new)
}

/// Takes the lines away while something else is printed.
pub(crate) fn aside<T>(print: impl FnOnce() -> T) -> T {
    lines().suspend(print)
}

/// Takes the lines away for good.
pub(crate) fn clear() {
    // A terminal that is gone shows nothing anyway.
    let _ = lines().clear();
}

/// A bar over `total` bytes.
pub(crate) fn bar(label: &str, total: u64) -> ProgressBar {
    let bar = lines().add(ProgressBar::new(total));
    style(&bar, "{prefix:<12} {wide_bar} {bytes}/{total_bytes} {eta}");
    bar.set_prefix(label.to_owned());
    bar
}

/// A line that shows that work goes on, for what has no measure.
pub(crate) fn spinner(label: &str) -> ProgressBar {
    let bar = lines().add(ProgressBar::new_spinner());
    style(&bar, "{spinner} {prefix}: {msg} ({elapsed})");
    bar.set_prefix(label.to_owned());
    bar.enable_steady_tick(LOOK);
    bar
}

fn style(bar: &ProgressBar, template: &str) {
    // Templates are constants that parse; the default is as good.
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
}

/// Waits for `work`, which writes `file`, and moves the bar on with it.
pub(crate) async fn follow<T>(bar: &ProgressBar, file: &Path, work: impl Future<Output = T>) -> T {
    let start = bar.position();
    let size = || std::fs::metadata(file).map_or(0, |m| m.len());
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            () = tokio::time::sleep(LOOK) => bar.set_position(start + size()),
        }
    };
    bar.set_position(start + size());
    done
}

/// Waits for `work`, which has no measure.
pub(crate) async fn wait<T>(label: &str, what: &str, work: impl Future<Output = T>) -> T {
    let line = spinner(label);
    line.set_message(what.to_owned());
    let done = work.await;
    line.finish_and_clear();
    done
}
