//! A progress message for work that takes longer than a second.

use crate::output::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time before the message.
const MESSAGE_DELAY: Duration = Duration::from_secs(1);

/// Runs `work`. If it takes longer than a second, prints `what` to standard error: with a spinner and the time on a
/// terminal, otherwise as one line.
pub fn during<R>(what: &str, work: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let (done, watch) = channel::<()>();
        scope.spawn(move || {
            if watch.recv_timeout(MESSAGE_DELAY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if !std::io::stderr().is_terminal() {
                say(format_args!("{what} ..."));
                return;
            }
            let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                spinner.set_style(style);
            }
            spinner.set_elapsed(MESSAGE_DELAY);
            spinner.enable_steady_tick(Duration::from_millis(100));
            // Ends when the sender is dropped, also by a panic in `work`.
            let _ = watch.recv();
            spinner.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}
