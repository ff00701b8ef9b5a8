//! The machine and its disk.

use std::collections::HashMap;
use std::fs::{File, read_to_string};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub bound_to: Option<String>,
    pub memory_gib: u64,
    pub kernel: String,
    /// The folder where databases and Redis write.
    pub filesystem: String,
    /// Writing 4 KiB and fdatasync, p50: over what is there, and at the end of a file.
    pub overwrite_us: f64,
    pub append_us: f64,
}

/// Binds this program, and what it starts, to some cores. Before it has threads.
pub fn bind(cores: &str) -> Result<()> {
    let this = std::process::id().to_string();
    let bound = Command::new("taskset").args(["-a", "-p", "-c", cores, &this]).output().context("taskset")?;
    if !bound.status.success() {
        bail!("--cores {cores}: {}", String::from_utf8_lossy(&bound.stderr).trim());
    }
    Ok(())
}

/// The time that the processors have worked for a process and those below it, as the kernel counts in hundredths of a
/// second.
pub fn worked(process: u32) -> Result<Duration> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that has ended meanwhile is counted with the one that began it.
        let Ok(stat) = read_to_string(format!("/proc/{id}/stat")) else { continue };
        // Behind its name, which is in brackets.
        let fields: Vec<i64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split(' ')
            .filter_map(|field| field.parse().ok())
            .collect();
        let (Some(parent), Some(ticks)) = (fields.first(), fields.get(10..14)) else { continue };
        all.insert(i64::from(id), (*parent, ticks.iter().sum::<i64>()));
    }
    let is_below = |mut id: i64| {
        while id != i64::from(process) {
            match all.get(&id) {
                Some((parent, _)) => id = *parent,
                None => return false,
            }
        }
        true
    };
    let ticks = all.iter().filter(|(id, _)| is_below(**id)).map(|(_, (_, ticks))| ticks).sum::<i64>();
    Ok(Duration::from_millis(10 * ticks.unsigned_abs()))
}

impl Machine {
    pub fn look(bound_to: Option<&str>, directory: &Path) -> Result<Self> {
        let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
        let memory_kib: u64 = field("/proc/meminfo", "MemTotal")
            .and_then(|total| total.split(' ').next()?.parse().ok())
            .unwrap_or_default();
        settle(directory);
        let [overwrite_us, append_us] = fdatasync_p50_us(directory)?;
        Ok(Self {
            processor,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            bound_to: bound_to.map(str::to_owned),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            filesystem: filesystem(directory)?,
            overwrite_us,
            append_us,
        })
    }

    pub fn lines(&self) -> String {
        let Self { processor, cores, memory_gib, kernel, filesystem, overwrite_us, append_us, .. } = self;
        let bound = self.bound_to.as_ref().map_or(String::new(), |list| format!(" (bound to {list})"));
        format!(
            "machine: {processor}, {cores} cores{bound} for clients and servers together, {memory_gib} GiB, Linux \
             {kernel}\ndisk: {filesystem}, for every database and for Redis; 4 KiB and fdatasync, p50: {overwrite_us:.0} µs \
             over what is there, {append_us:.0} µs at the end of a file"
        )
    }
}

/// Writes back what others left in memory: the disk would be busy with that.
pub fn settle(directory: &Path) {
    Command::new("timeout").args(["120", "sync", "--file-system"]).arg(directory).status().ok();
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn filesystem(directory: &Path) -> Result<String> {
    let df = Command::new("df").arg("--output=source,fstype").arg(directory).output().context("df")?;
    let text = String::from_utf8_lossy(&df.stdout);
    let line = text.lines().nth(1).context("df tells no file system")?;
    let words = line.split_whitespace().collect::<Vec<_>>();
    if words.contains(&"tmpfs") {
        bail!("{} is memory; name a directory on a disk in TALLYGATE_COMPARE_DIR", directory.display());
    }
    Ok(words.join(" "))
}

/// Over what is there already, as the logs of the servers are written, and at the end of a file, as those of Redis
/// and SQLite grow.
fn fdatasync_p50_us(directory: &Path) -> Result<[f64; 2]> {
    const BLOCK: [u8; 4_096] = [7; 4_096];
    const BLOCKS: usize = 300;
    let path = directory.join("fdatasync");
    let mut file = File::create(&path)?;
    file.write_all(&BLOCK.repeat(BLOCKS))?;
    file.sync_all()?;
    let mut p50s = [0.0; 2];
    for (p50, from) in p50s.iter_mut().zip([SeekFrom::Start(0), SeekFrom::End(0)]) {
        file.seek(from)?;
        let mut took = Vec::new();
        let begin = Instant::now();
        while took.is_empty() || (took.len() < BLOCKS && begin.elapsed().as_secs() < 5) {
            let before = Instant::now();
            file.write_all(&BLOCK)?;
            file.sync_data()?;
            took.push(before.elapsed());
        }
        took.sort_unstable();
        *p50 = took[took.len() / 2].as_secs_f64() * 1e6;
    }
    std::fs::remove_file(path)?;
    Ok(p50s)
}
