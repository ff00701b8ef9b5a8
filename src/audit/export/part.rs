//! A file of an export while it is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use sha2::{Digest as _, Sha256};

use super::ExportFormat;
use super::cells::{COLUMNS, Cell, Cells, Holds};
use crate::chain::{Hash, hex};

/// Rows of a row group: some 50 MB while they are gathered.
const GROUP_ROWS: usize = 20_000;

pub(super) enum Part {
    Csv(Box<csv::Writer<Hashed>>),
    JsonLines(Hashed),
    Parquet(Box<SerializedFileWriter<Hashed>>, Vec<Cells>),
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
            ExportFormat::Parquet => {
                let schema = Arc::new(parse_message_type(&schema()).map_err(fault)?);
                let writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default()));
                Self::Parquet(Box::new(writer.map_err(fault)?), Vec::new())
            }
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
            Self::Parquet(writer, rows) => {
                rows.push(cells);
                if rows.len() == GROUP_ROWS { write_group(writer, rows) } else { Ok(()) }
            }
        }
    }

    /// Brings it to the disk, and tells how many bytes there are and their SHA-256.
    pub fn finish(self) -> io::Result<(u64, String)> {
        let file = match self {
            Self::Csv(writer) => writer.into_inner().map_err(|e| io::Error::other(e.to_string()))?,
            Self::JsonLines(file) => file,
            Self::Parquet(mut writer, mut rows) => {
                if !rows.is_empty() {
                    write_group(&mut writer, &mut rows)?;
                }
                writer.into_inner().map_err(fault)?
            }
        };
        let (bytes, hash) = file.finish()?;
        Ok((bytes, hex(&hash)))
    }
}

fn schema() -> String {
    let column = |(name, holds): &(&str, Holds)| match holds {
        Holds::Number => format!("optional int64 {name};"),
        Holds::Flag => format!("optional boolean {name};"),
        Holds::Text => format!("optional binary {name} (utf8);"),
        Holds::Time => format!("optional int64 {name} (timestamp(micros,true));"),
    };
    format!("message zone_txn {{ {} }}", COLUMNS.iter().map(column).collect::<String>())
}

fn write_group(writer: &mut SerializedFileWriter<Hashed>, rows: &mut Vec<Cells>) -> io::Result<()> {
    let mut group = writer.next_row_group().map_err(fault)?;
    for (at, (_, holds)) in COLUMNS.iter().enumerate() {
        write_column(&mut group, *holds, at, rows).map_err(fault)?;
    }
    group.close().map_err(fault)?;
    rows.clear();
    Ok(())
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Hashed>,
    holds: Holds,
    at: usize,
    rows: &[Cells],
) -> Result<(), ParquetError> {
    let is_there: Vec<i16> = rows.iter().map(|cells| i16::from(cells[at] != Cell::Null)).collect();
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    let cells = rows.iter().map(|cells| &cells[at]);
    match holds {
        Holds::Number | Holds::Time => {
            let number = |cell: &Cell| match cell {
                Cell::Number(number) | Cell::Time(number) => Some(*number),
                _ => None,
            };
            let numbers: Vec<i64> = cells.filter_map(number).collect();
            column.typed::<Int64Type>().write_batch(&numbers, Some(&is_there), None)?;
        }
        Holds::Flag => {
            let flag = |cell: &Cell| if let Cell::Flag(flag) = cell { Some(*flag) } else { None };
            let flags: Vec<bool> = cells.filter_map(flag).collect();
            column.typed::<BoolType>().write_batch(&flags, Some(&is_there), None)?;
        }
        Holds::Text => {
            let text = |cell: &Cell| {
                if let Cell::Text(text) = cell { Some(ByteArray::from(text.as_str())) } else { None }
            };
            let texts: Vec<ByteArray> = cells.filter_map(text).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, Some(&is_there), None)?;
        }
    }
    column.close()
}

fn fault(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
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
        Ok(Self { file: BufWriter::new(private(path)?), bytes: 0, sha256: Sha256::new() })
    }

    pub fn finish(mut self) -> io::Result<(u64, Hash)> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok((self.bytes, self.sha256.finalize().into()))
    }
}

/// A file made anew, which only its owner can read: it is as personal as the ledger. One that was left over, or a link that
/// somebody laid there, is not written to.
pub(super) fn private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
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
