//! The machine and its disk.

use std::fs::{File, read_to_string};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub bound_to: Option<String>,
    pub memory_gib: u64,
    pub kernel: String,
    /// Where databases and Redis write.
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
