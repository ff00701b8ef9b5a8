//! The ends of chains in the order of their beginnings, however many there are.
//!
//! That order does not change when a key is erased, and tells nothing about it. The database cannot give it, so what does
//! not fit in memory is sorted in files that have no name and go away whatever happens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use crate::chain::Hash;

/// The number that is sorted in memory: 84 MB.
const ROOM: usize = 1 << 20;

/// The end of a bucket's chain, as it is a leaf and as it is in a file of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    pub zone_id: i32,
    /// The hash that the chain begins with.
    pub start: Hash,
    /// `seq` and hash of the last row.
    pub seq: i64,
    pub row_hash: Hash,
}

impl Head {
    pub const BYTES: usize = 76;

    /// In the place of `seq`: the last row was dropped, and later ones too. No row has it, and it is in no tree or file.
    pub const LOST: i64 = 0;

    pub fn is_lost(&self) -> bool {
        self.seq == Self::LOST
    }

    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.zone_id.to_be_bytes());
        bytes[4..36].copy_from_slice(&self.start);
        bytes[36..44].copy_from_slice(&self.seq.to_be_bytes());
        bytes[44..].copy_from_slice(&self.row_hash);
        bytes
    }

    /// The bucket that it is of.
    pub fn bucket(&self) -> (i32, Hash) {
        (self.zone_id, self.start)
    }

    /// The next one of a file; None at its end.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::BYTES];
        let mut filled = 0;
        while filled < Self::BYTES {
            match from.read(&mut bytes[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        }
        let (mut zone_id, mut start, mut seq, mut row_hash) = ([0; 4], [0; 32], [0; 8], [0; 32]);
        zone_id.copy_from_slice(&bytes[..4]);
        start.copy_from_slice(&bytes[4..36]);
        seq.copy_from_slice(&bytes[36..44]);
        row_hash.copy_from_slice(&bytes[44..]);
        let (zone_id, seq) = (i32::from_be_bytes(zone_id), i64::from_be_bytes(seq));
        Ok(Some(Self { zone_id, start, seq, row_hash }))
    }
}

/// Takes heads in any order.
pub(super) struct Sorter {
    room: usize,
    held: Vec<Head>,
    runs: Vec<File>,
}

impl Sorter {
    pub fn new() -> Self {
        Self { room: ROOM, held: Vec::new(), runs: Vec::new() }
    }

    pub fn push(&mut self, head: Head) -> io::Result<()> {
        if self.held.len() == self.room {
            self.held.sort_unstable();
            let mut file = BufWriter::new(tempfile::tempfile()?);
            for head in self.held.drain(..) {
                file.write_all(&head.bytes())?;
            }
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            self.runs.push(file);
        }
        self.held.push(head);
        Ok(())
    }

    /// Gives them back in order.
    pub fn sorted(mut self) -> io::Result<Sorted> {
        self.held.sort_unstable_by(|a, b| b.cmp(a));
        let mut sorted = Sorted { held: self.held, runs: Vec::new(), first: BinaryHeap::new() };
        for (n, file) in self.runs.into_iter().enumerate() {
            sorted.runs.push(BufReader::new(file));
            sorted.advance(n)?;
        }
        Ok(sorted)
    }
}

/// Heads in order: those in memory, the last of which comes first, and those in files.
pub(super) struct Sorted {
    held: Vec<Head>,
    runs: Vec<BufReader<File>>,
    /// The first of each file.
    first: BinaryHeap<Reverse<(Head, usize)>>,
}

impl Sorted {
    pub fn next(&mut self) -> io::Result<Option<Head>> {
        let filed = self.first.peek().map(|Reverse((head, _))| *head);
        match (self.held.last(), filed) {
            (Some(held), Some(filed)) if *held <= filed => Ok(self.held.pop()),
            (_, Some(filed)) => {
                if let Some(Reverse((_, run))) = self.first.pop() {
                    self.advance(run)?;
                }
                Ok(Some(filed))
            }
            (_, None) => Ok(self.held.pop()),
        }
    }

    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some(head) = Head::read(&mut self.runs[run])? {
            self.first.push(Reverse((head, run)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chain::sha256;

    proptest! {
        #[test]
        fn heads_come_out_in_order_whatever_room_there_is(seeds in prop::collection::vec(0..50u8, 0..100), room in 1..40usize) {
            let head = |n: &u8| Head {
                zone_id: i32::from(n % 3),
                start: sha256(&[&[*n]]),
                seq: i64::from(*n) - 7,
                row_hash: sha256(&[&[*n, 1]]),
            };
            let mut right: Vec<Head> = seeds.iter().map(head).collect();
            let mut sorter = Sorter { room, ..Sorter::new() };
            right.iter().for_each(|head| sorter.push(*head).unwrap());
            right.sort();
            let mut sorted = sorter.sorted().unwrap();
            let all: Vec<Head> = std::iter::from_fn(|| sorted.next().unwrap()).collect();
            prop_assert_eq!(all, right);
        }
    }
}
