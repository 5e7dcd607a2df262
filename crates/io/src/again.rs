//! Calls that a signal interrupts.

use std::io::{self, ErrorKind};

/// Repeats a call until it is not interrupted. With a time limit on a socket it also is when the process was stopped and continues (signal(7)).
pub fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeated_while_it_is_interrupted_and_no_longer() {
        let mut results = [Err(ErrorKind::Interrupted), Err(ErrorKind::Interrupted), Ok(7), Ok(8)].into_iter();
        let mut call = || results.next().expect("it ends").map_err(io::Error::from);
        assert_eq!(again(&mut call).expect("the first that is not interrupted"), 7);
        let failed = again(|| Err::<(), _>(ErrorKind::BrokenPipe.into())).expect_err("other errors end it");
        assert_eq!(failed.kind(), ErrorKind::BrokenPipe);
    }
}
