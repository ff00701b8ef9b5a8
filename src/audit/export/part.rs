//! A file of an export while it is written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::ExportFormat;
use super::cells::{COLUMNS, Cell, Cells};
#[cfg(feature = "parquet")]
use super::parquet::Groups;
use crate::chain::{Hash, hex};
use crate::private;

pub(super) enum Part {
    Csv(Box<csv::Writer<Hashed>>),
    JsonLines(Hashed),
    #[cfg(feature = "parquet")]
    Parquet(Box<Groups>),
}

impl Part {
    pub fn create(path: &Path, format: ExportFormat) -> io::Result<Self> {
        let file = Hashed::create(path)?;
        Ok(match format {
            ExportFormat::Csv => {
                let mut writer = csv::Writer::from_writer(file);
                writer.write_record(COLUMNS.map(|(name, _)| name))?;
                Self::Csv(Box::new(writer))
            }
            ExportFormat::JsonLines => Self::JsonLines(file),
            #[cfg(feature = "parquet")]
            ExportFormat::Parquet => Self::Parquet(Box::new(Groups::create(file)?)),
            #[cfg(not(feature = "parquet"))]
            ExportFormat::Parquet => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    pub fn write(&mut self, cells: Cells) -> io::Result<()> {
        match self {
            Self::Csv(writer) => Ok(writer.write_record(cells.each_ref().map(Cell::text))?),
            Self::JsonLines(file) => {
                let named = COLUMNS.iter().zip(&cells);
                let fields: Vec<_> =
                    named.map(|((name, _), cell)| format!("\"{name}\":{}", cell.json())).collect();
                writeln!(file, "{{{}}}", fields.join(","))
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(groups) => groups.write(cells),
        }
    }

    /// Brings it to the disk, and tells how many bytes there are and their SHA-256.
    pub fn finish(self) -> io::Result<(u64, String)> {
        let file = match self {
            Self::Csv(writer) => writer.into_inner().map_err(|e| io::Error::other(e.to_string()))?,
            Self::JsonLines(file) => file,
            #[cfg(feature = "parquet")]
            Self::Parquet(groups) => groups.finish()?,
        };
        let (bytes, hash) = file.finish()?;
        Ok((bytes, hex(&hash)))
    }
}

/// A file, and the hash of what was written to it.
pub(super) struct Hashed {
    file: BufWriter<File>,
    bytes: u64,
    sha256: Sha256,
}

impl Hashed {
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufWriter::new(private::anew(path)?), bytes: 0, sha256: Sha256::new() })
    }

    pub fn finish(mut self) -> io::Result<(u64, Hash)> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok((self.bytes, self.sha256.finalize().into()))
    }
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        self.sha256.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
