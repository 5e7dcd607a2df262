//! A run that goes on while a test looks at it.

use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Braid;

/// A `braid run` with a control socket; ended with the test, whatever becomes of it.
pub struct Running<'a> {
    braid: &'a Braid,
    child: Option<Child>,
}

impl<'a> Running<'a> {
    /// Starts `braid run … --control control.sock --json` and waits until it has handled packets.
    pub fn start(braid: &'a Braid, line: &str) -> Running<'a> {
        let mut command = braid.command(&format!("run {line} --control control.sock --json"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut running = Running { braid, child: Some(child) };
        running.until("packets come", |stats| stats["packets_in"].as_u64() > Some(0));
        running
    }

    pub fn socket(&self) -> PathBuf {
        self.braid.path("control.sock")
    }

    /// Waits until the figures are as wanted.
    #[track_caller]
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let output = self.braid.run("stats --control control.sock");
            if let Ok(stats) = serde_json::from_slice::<Value>(&output.stdout)
                && wanted(&stats)
            {
                return stats;
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().expect("a child")) {
                let output = self.child.take().expect("it was there").wait_with_output().expect("its output");
                panic!("the run ended before {what}: {status}\n{}", String::from_utf8_lossy(&output.stderr));
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has another program continue it; the figures of that one, to which packets have come.
    #[track_caller]
    pub fn upgrade(&mut self, words: &str) -> Value {
        let seconds = |stats: &Value| stats["seconds"].as_f64().expect("a time");
        self.until("a second has passed", |stats| seconds(stats) > 1.0);
        let told = Instant::now();
        self.braid.ok(&format!("upgrade {words} --control control.sock"));
        // The program before has run for a second longer than that.
        self.until("another program goes on", |stats| {
            seconds(stats) < told.elapsed().as_secs_f64() && stats["packets_in"].as_u64() > Some(0)
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status().expect("kill");
        assert!(sent.success());
    }

    /// Ends it in order; its report.
    #[track_caller]
    pub fn stop(self) -> Value {
        self.stop_and_hear().0
    }

    /// The same, and what it has said on standard error.
    #[track_caller]
    pub fn stop_and_hear(mut self) -> (Value, String) {
        self.signal("-INT");
        self.ended_and_said()
    }

    /// Its report, when it ends by itself.
    #[track_caller]
    pub fn ended(&mut self) -> Value {
        self.ended_and_said().0
    }

    #[track_caller]
    fn ended_and_said(&mut self) -> (Value, String) {
        let (output, said) = self.output();
        assert!(output.status.success(), "{:?}\n{said}", output.status);
        (serde_json::from_slice(&output.stdout).expect("a report"), said)
    }

    /// How it ends, and what it has said on standard error.
    #[track_caller]
    pub fn output(&mut self) -> (Output, String) {
        let output = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
