//! The ledger in files, for who audits it with tools of their own. The columns are told in `docs/audit.md`.

mod cells;
#[cfg(feature = "parquet")]
mod parquet;
mod part;
mod removed;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::audit::Auditor;
use crate::boxed::{BoxFuture, boxed};
use crate::entry::History;
use crate::error::{Error, Result};
use crate::private;
use crate::store::{Evidence, EvidenceOf, Of, ROWS, Span, beginning};
use part::Part;
use removed::removed;

/// The time before now at which an export ends by itself: younger rows may not be committed yet.
const MARGIN: TimeDelta = TimeDelta::minutes(15);

const MANIFEST: &str = "manifest.json";

/// An export: its rows, and the folder that they go to.
///
/// ```
/// use tallygate::audit::export::{Export, ExportFormat};
/// let login = Export::new("/srv/audit/2026", ExportFormat::Parquet).zone("login");
/// # let _ = login;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Export {
    /// The folder; made when it is not there.
    pub to: PathBuf,
    /// The format of the files.
    pub format: ExportFormat,
    /// Only this zone; None for all.
    pub zone: Option<String>,
    /// Rows decided at this time or later; None for all.
    pub since: Option<DateTime<Utc>>,
    /// Rows decided before this time; None for 15 minutes ago, by the database's clock.
    pub until: Option<DateTime<Utc>>,
    /// The most rows of a file: 1 or more.
    pub part_rows: u32,
}

/// The formats of the files of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExportFormat {
    /// With a header; RFC 4180.
    #[serde(rename = "csv")]
    Csv,
    /// An object in each line.
    #[serde(rename = "jsonl")]
    JsonLines,
    /// Apache Parquet, not compressed; needs the feature `parquet`.
    #[serde(rename = "parquet")]
    Parquet,
}

/// An account of what an export wrote; the file `manifest.json` of its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Manifest {
    /// Version of the file's format: 1.
    pub format: u32,
    /// The format of the files.
    #[serde(rename = "as")]
    pub written_as: ExportFormat,
    /// The zone; None for all.
    pub zone: Option<String>,
    /// Rows decided at this time or later.
    #[serde(serialize_with = "moment_if")]
    pub since: Option<DateTime<Utc>>,
    /// Rows decided before this time.
    #[serde(serialize_with = "moment")]
    pub until: DateTime<Utc>,
    /// The most rows of a file.
    pub part_rows: u32,
    /// True when there is nothing more to export.
    pub complete: bool,
    /// The number of rows in all files.
    pub rows: u64,
    /// The files, in order.
    pub parts: Vec<ExportPart>,
    /// Removals by owners before `until`, in a file of its own; None while it is not complete.
    pub removals: Option<ExportRemovals>,
}

/// The file of an export that tells what owners removed from the ledger: its columns are those of `zone_removal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ExportRemovals {
    /// Its name.
    pub file: String,
    /// The number of removals that it has.
    pub rows: u64,
    /// The number of its bytes.
    pub bytes: u64,
    /// SHA-256 of them.
    pub sha256: String,
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ExportPart {
    /// Its name.
    pub file: String,
    /// The number of its rows.
    pub rows: u64,
    /// The number of its bytes.
    pub bytes: u64,
    /// SHA-256 of them.
    pub sha256: String,
    /// Its first row.
    pub first: ExportPlace,
    /// Its last row.
    pub last: ExportPlace,
}

/// A row of an export, by its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ExportPlace {
    /// The zone.
    pub zone_id: i32,
    /// The bucket.
    pub bucket_key: String,
    /// Position in the bucket.
    pub seq: i64,
    /// The time when it was decided.
    #[serde(serialize_with = "moment")]
    pub created_at: DateTime<Utc>,
    /// Its hash.
    pub row_hash: String,
}

impl ExportFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}

/// Writes what is not written yet.
pub(crate) fn export<'a>(
    auditor: &'a Auditor,
    export: &'a Export,
    progress: &'a mut (dyn FnMut(u64) + Send),
) -> BoxFuture<'a, Result<Manifest>> {
    boxed(async move {
        if cfg!(not(feature = "parquet")) && export.format == ExportFormat::Parquet {
            return Err(Error::invalid(
                "this program cannot write Parquet; build it with the feature parquet, or ask for csv or jsonl",
            ));
        }
        let now = auditor.read(|store| store.now()).await?;
        let mut zones = auditor.zones().await?;
        if let Some(name) = &export.zone {
            zones.retain(|zone| zone.name == *name);
            if zones.is_empty() {
                return Err(Error::unknown_zone(format!(
                    "there is no zone {name:?}; list them with: tallygate zone list"
                )));
            }
        }
        zones.sort_unstable_by_key(|zone| zone.id);
        let mut manifest = export.begin(now)?;
        if manifest.complete {
            return Ok(manifest);
        }
        let done = manifest.parts.last().map(|part| part.last.clone());
        let mut files = Files { export, manifest: &mut manifest, open: None };
        for zone in &zones {
            let mut of = export.pages(zone.id, files.manifest.until);
            match &done {
                Some(done) if done.zone_id > zone.id => continue,
                Some(done) if done.zone_id == zone.id => {
                    of.after = (done.bucket_key.clone(), done.created_at, done.seq);
                }
                _ => {}
            }
            loop {
                let page = auditor.read(|store| store.evidence(&of)).await?;
                let is_last = page.len() < ROWS;
                for evidence in page {
                    of.after = files.write(zone.id, &zone.name, evidence)?;
                }
                progress(files.manifest.rows + files.open.as_ref().map_or(0, |open| open.rows));
                if is_last {
                    break;
                }
            }
        }
        files.close()?;
        manifest.removals = Some(removed(auditor, &export.to, &zones, manifest.until).await?);
        manifest.complete = true;
        manifest.write(&export.to)?;
        Ok(manifest)
    })
}

impl Export {
    /// Everything up to 15 minutes ago, with at most 1,000,000 rows in a file.
    pub fn new(to: impl Into<PathBuf>, format: ExportFormat) -> Self {
        Self { to: to.into(), format, zone: None, since: None, until: None, part_rows: 1_000_000 }
    }

    /// Only this zone.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Rows decided at this time or later.
    pub fn since(self, since: DateTime<Utc>) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Rows decided before this time, instead of up to 15 minutes ago.
    pub fn until(self, until: DateTime<Utc>) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Sets the most rows of a file: 1 or more.
    pub fn part_rows(self, part_rows: u32) -> Self {
        Self { part_rows, ..self }
    }

    /// The manifest of what was written before, or of nothing.
    fn begin(&self, now: DateTime<Utc>) -> Result<Manifest> {
        let Self { to, format, zone, since, until, part_rows } = self;
        if *part_rows == 0 {
            return Err(Error::invalid("a file of 0 rows was asked for; use 1 or more"));
        }
        History { zone: zone.clone(), since: *since, until: *until, ..History::default() }.validate()?;
        let folder = to.display();
        let fault = |e| Error::invalid(format!("{folder} cannot be written: {e}")).caused_by(e);
        fs::create_dir_all(to).map_err(fault)?;
        let text = match fs::read_to_string(to.join(MANIFEST)) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if fs::read_dir(to).map_err(fault)?.next().is_some() {
                    return Err(Error::invalid(format!(
                        "{folder} has other files; name an empty or a new folder"
                    )));
                }
                let manifest = Manifest {
                    format: 1,
                    written_as: *format,
                    zone: zone.clone(),
                    since: *since,
                    until: until.unwrap_or(now - MARGIN).min(now),
                    part_rows: *part_rows,
                    complete: false,
                    rows: 0,
                    parts: Vec::new(),
                    removals: None,
                };
                manifest.write(to)?;
                return Ok(manifest);
            }
            Err(e) => return Err(fault(e)),
        };
        let manifest: Manifest = serde_json::from_str(&text).map_err(|e| {
            Error::invalid(format!("{folder}/{MANIFEST} is no manifest: {e}; name an empty folder"))
                .caused_by(e)
        })?;
        let same = manifest.format == 1
            && manifest.written_as == *format
            && (&manifest.zone, &manifest.since, &manifest.part_rows) == (zone, since, part_rows)
            && until.is_none_or(|until| until == manifest.until);
        if !same {
            return Err(Error::invalid(format!(
                "{folder} has an export of other rows or another format; ask for the same, or name an empty folder"
            )));
        }
        for part in &manifest.parts {
            let bytes = fs::metadata(to.join(&part.file)).map(|file| file.len());
            if bytes.as_ref().ok() != Some(&part.bytes) {
                return Err(Error::invalid(format!(
                    "{folder}/{} is not as it was written; name an empty folder",
                    part.file
                )));
            }
        }
        Ok(manifest)
    }

    /// A zone's rows from the first on.
    fn pages(&self, zone_id: i32, until: DateTime<Utc>) -> EvidenceOf {
        let history = History { since: self.since, until: Some(until), ..History::default() };
        let Span { since, until, .. } = Span::new(Of::Zone(zone_id), &history);
        EvidenceOf { zone_id, after: (String::new(), beginning().0, 0), since, until }
    }
}

/// The files of an export, one of which is open.
struct Files<'e> {
    export: &'e Export,
    manifest: &'e mut Manifest,
    open: Option<Open>,
}

struct Open {
    part: Part,
    rows: u64,
    first: ExportPlace,
    last: ExportPlace,
}

impl Files<'_> {
    /// Writes a row and tells its place.
    fn write(
        &mut self,
        zone_id: i32,
        zone: &str,
        evidence: Evidence,
    ) -> Result<(String, DateTime<Utc>, i64)> {
        let place = ExportPlace {
            zone_id,
            bucket_key: evidence.key.clone(),
            seq: evidence.row.seq,
            created_at: DateTime::from_timestamp_micros(evidence.row.at_us).unwrap_or_default(),
            row_hash: crate::chain::hex(&evidence.row_hash),
        };
        let after = (place.bucket_key.clone(), place.created_at, place.seq);
        let path = self.path(".partial");
        let fault = |e| unwritten(&path, e);
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open {
                part: Part::create(&path, self.export.format).map_err(fault)?,
                rows: 0,
                first: place.clone(),
                last: place.clone(),
            }),
        };
        open.part.write(cells::cells(zone_id, zone, evidence)).map_err(fault)?;
        open.rows += 1;
        open.last = place;
        if open.rows == u64::from(self.export.part_rows) {
            self.close()?;
        }
        Ok(after)
    }

    /// Ends the open file. Only then it has its name, and the manifest knows it.
    fn close(&mut self) -> Result<()> {
        let Some(Open { part, rows, first, last }) = self.open.take() else { return Ok(()) };
        let (partial, path) = (self.path(".partial"), self.path(""));
        let (bytes, sha256) = part.finish().map_err(|e| unwritten(&partial, e))?;
        fs::rename(&partial, &path).map_err(|e| unwritten(&path, e))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.manifest.parts.push(ExportPart { file, rows, bytes, sha256, first, last });
        self.manifest.rows += rows;
        self.manifest.write(&self.export.to)
    }

    fn path(&self, end: &str) -> PathBuf {
        let (number, extension) = (self.manifest.parts.len() + 1, self.export.format.extension());
        self.export.to.join(format!("ledger-{number:05}.{extension}{end}"))
    }
}

impl Manifest {
    /// Writes it in one step.
    fn write(&self, to: &Path) -> Result<()> {
        let path = to.join(MANIFEST);
        let partial = to.join(format!("{MANIFEST}.partial"));
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::database("the manifest could not be written as JSON").caused_by(e))?;
        private::anew(&partial)
            .and_then(|mut file| file.write_all((text + "\n").as_bytes()))
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|e| unwritten(&path, e))
    }
}

fn unwritten(path: &Path, e: io::Error) -> Error {
    Error::invalid(format!("{} cannot be written: {e}; make room and run it again", path.display()))
        .caused_by(e)
}

fn moment<S: serde::Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Micros, true))
}

fn moment_if<S: serde::Serializer>(at: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => moment(at, serializer),
        None => serializer.serialize_none(),
    }
}
