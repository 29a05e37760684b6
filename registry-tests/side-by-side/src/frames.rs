//! How logits go from one process to another: per position the number of them in four bytes and each in four more, all with the least first;
//! a number of 0 ends them.

use std::io::{self, Read, Write};

/// More logits than any vocabulary has.
const MOST: u32 = 1 << 24;

pub fn write(to: &mut impl Write, logits: &[f32]) -> io::Result<()> {
    let n = u32::try_from(logits.len()).ok().filter(|n| (1..=MOST).contains(n));
    let n = n.ok_or_else(|| io::Error::other(format!("expected 1 to {MOST} logits, found {}", logits.len())))?;
    to.write_all(&n.to_le_bytes())?;
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    to.write_all(&bytes)
}

pub fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&0u32.to_le_bytes())
}

/// Puts the next position's logits into `logits`; false where they have ended.
pub fn read(from: &mut impl Read, logits: &mut Vec<f32>) -> io::Result<bool> {
    let mut n = [0; 4];
    from.read_exact(&mut n)?;
    let n = u32::from_le_bytes(n);
    if n > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected at most {MOST} logits, found {n}")));
    }
    let mut bytes = vec![0; n as usize * 4];
    from.read_exact(&mut bytes)?;
    logits.clear();
    logits.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    Ok(n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_until_the_end() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[1.5, -2.0]).unwrap();
        write(&mut bytes, &[0.25]).unwrap();
        end(&mut bytes).unwrap();
        bytes.extend(b"more");
        let (mut from, mut logits) = (&bytes[..], Vec::new());
        assert!(read(&mut from, &mut logits).unwrap());
        assert_eq!(logits, [1.5, -2.0]);
        assert!(read(&mut from, &mut logits).unwrap());
        assert_eq!(logits, [0.25]);
        assert!(!read(&mut from, &mut logits).unwrap());
        assert_eq!(from, b"more");
    }

    #[test]
    fn no_logits_and_too_many_are_refused() {
        assert!(write(&mut Vec::new(), &[]).is_err());
        assert!(read(&mut &u32::MAX.to_le_bytes()[..], &mut Vec::new()).is_err());
        assert!(read(&mut &[8, 0, 0, 0, 1][..], &mut Vec::new()).is_err());
    }
}
