//! Messages about a wrong command line.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

/// Messages of the standard library about numbers, and what they mean.
const NUMBERS: [(&str, &str); 3] = [
    ("invalid digit found in string", "give a whole number that is not negative"),
    ("invalid float literal", "give a number, such as 0.01"),
    ("number too large to fit in target type", "the number is too large"),
];

/// A negative number is a value, which may be out of range, and not an unknown option.
pub fn negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(negative_numbers)
}

/// Prints help or what is wrong with a command line, and gives the exit status.
pub fn report(mut error: Error) -> ExitCode {
    let status = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    if error.kind() == ErrorKind::UnknownArgument {
        suggest(&mut error);
    }
    let text = error.to_string();
    match NUMBERS.iter().find(|(problem, _)| error.kind() == ErrorKind::ValueValidation && text.contains(problem)) {
        Some((problem, meaning)) => crate::output::say(text.replacen(problem, meaning, 1).trim_end()),
        // Errors of standard output and standard error are ignored.
        None => drop(error.print()),
    }
    status
}

/// What may be meant by an argument that the command does not have.
fn suggest(error: &mut Error) {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return };
    let learns = std::env::args().skip(1).any(|word| word == "train" || word == "eval");
    let tip = match argument.as_str() {
        "-o" | "--output" => "the output has no option here: the usage line shows its place".to_string(),
        folder if learns && Path::new(folder).is_dir() => format!("the folder of the data is '--data {folder}'"),
        _ => return,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}
