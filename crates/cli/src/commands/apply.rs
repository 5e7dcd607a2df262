//! `braid apply`: applies another plan to a run while it continues.

use std::path::PathBuf;
use std::process::ExitCode;

use braid_control::live::{Applied, Request};
use braid_control::profile::counted;

use super::{print, print_json};
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;
use crate::stderr::asideln;

/// `braid apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// The plan file; keys that it omits keep their values
    pub plan: PathBuf,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &ApplyArgs) -> Result<ExitCode, Failure> {
    let plan = Failure::or_text(&args.plan)?;
    let answer = connect(&args.control)?.ask(&Request::Apply { plan });
    let applied: Applied = answer.map_err(|error| Failure::from(error).in_file(&args.plan))?;
    applied.notes.iter().for_each(|note| asideln!("note: {note}"));
    if args.json {
        print_json(&applied)?
    } else {
        print(&text(&applied))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats what was applied, in lines.
pub fn text(applied: &Applied) -> String {
    let Applied { changed, added, removed, kept, copied, elements, elements_held, .. } = applied;
    let Applied { sets, released, moving, evicted, held_us, .. } = applied;
    let lists = [("changed", changed), ("added", added), ("removed", removed), ("copied", copied), ("kept", kept)];
    if lists[..3].iter().all(|(_, list)| list.is_empty()) && sets.is_none() && *held_us == 0 {
        return "nothing differs\n".to_owned();
    }
    let line = |(what, list): &(&str, &Vec<String>)| format!("{what:<8} {}\n", list.join(", "));
    let mut text: String = lists.iter().filter(|(_, list)| !list.is_empty()).map(line).collect();
    if let Some((before, now)) = sets {
        text.push_str(&format!("sets     {before} → {now}\n"));
    }
    if *released > 0 {
        let packets = counted(*released as u64, "packet");
        text.push_str(&format!("{packets} that waited in what is removed went on at once\n"));
    }
    if *evicted > 0 {
        let sets = counted(*evicted as u64, "packet set");
        text.push_str(&format!("{sets}, the oldest of few each, let go to make room\n"));
    }
    if *moving > 0 {
        let sets = counted(*moving as u64, "packet set");
        text.push_str(&format!("{sets} on the way to other tables while packets go through\n"));
    }
    if !copied.is_empty() {
        let held = match elements_held {
            0 => "none".to_owned(),
            some => some.to_string(),
        };
        let elements = counted(*elements as u64, "element");
        text.push_str(&format!(
            "{elements} of state objects copied while packets went through, {held} while workers stood still\n"
        ));
    }
    text.push_str(&format!("workers stood still for {held_us} µs\n"));
    text
}
