//! Lines of a stream, none of them held when it is longer than it may be.

use std::io::{self, BufRead, Read};

/// The longest line that is read: 64 KiB, its end not counted.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A line that was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Reads the next line without its end; None at the end of the stream.
pub fn next(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    // One byte more for the line's end, and one more for the carriage return before it.
    reader.take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let ended = line.last() == Some(&b'\n');
    if ended {
        line.pop();
    } else if line.len() == LINE_BYTES_MAX + 2 {
        skip(reader)?;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(if line.len() > LINE_BYTES_MAX { Line::TooLong } else { Line::Whole(line) }))
}

/// Leaves out what remains of a line.
fn skip(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let (used, done) = match end {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(used);
        if done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Vec<Line> {
        let mut reader = text;
        std::iter::from_fn(|| next(&mut reader).unwrap()).collect()
    }

    #[test]
    fn lines_end_with_a_line_feed_or_a_carriage_return_and_one_or_the_stream() {
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(read(b"a\nb\r\n\nc"), [whole("a"), whole("b"), whole(""), whole("c")]);
    }

    #[test]
    fn a_line_longer_than_the_limit_is_left_out_and_the_next_one_is_read() {
        for over in [1, 2, 3, 100_000] {
            for end in ["\n", "\r\n"] {
                let text = format!("{}{end}next", "x".repeat(LINE_BYTES_MAX + over));
                assert_eq!(read(text.as_bytes()), [Line::TooLong, Line::Whole(b"next".into())], "{over}");
            }
        }
        for end in ["\n", "\r\n", ""] {
            let text = format!("{}{end}", "x".repeat(LINE_BYTES_MAX));
            assert_eq!(read(text.as_bytes()), [Line::Whole(vec![b'x'; LINE_BYTES_MAX])]);
        }
    }
}
