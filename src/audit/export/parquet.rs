//! A file of an export as Apache Parquet.

use std::io;
use std::sync::Arc;

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::cells::{COLUMNS, Cell, Cells, Holds};
use super::part::Hashed;

/// Rows of a row group: some 50 MB while they are gathered.
const GROUP_ROWS: usize = 20_000;

/// A file that is written in groups of rows.
pub(super) struct Groups {
    writer: SerializedFileWriter<Hashed>,
    rows: Vec<Cells>,
}

impl Groups {
    pub fn create(file: Hashed) -> io::Result<Self> {
        let schema = Arc::new(parse_message_type(&schema()).map_err(fault)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default()));
        Ok(Self { writer: writer.map_err(fault)?, rows: Vec::new() })
    }

    pub fn write(&mut self, cells: Cells) -> io::Result<()> {
        self.rows.push(cells);
        if self.rows.len() == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    pub fn finish(mut self) -> io::Result<Hashed> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        self.writer.into_inner().map_err(fault)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(fault)?;
        for (at, (_, holds)) in COLUMNS.iter().enumerate() {
            write_column(&mut group, *holds, at, &self.rows).map_err(fault)?;
        }
        group.close().map_err(fault)?;
        self.rows.clear();
        Ok(())
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
