//! Unpacking in the child: one frame an archive, a bounded window, a bounded output.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::overlay::Overlay;
use crate::protocol::{Fault, FaultKind, Port, reply, serve as serve_requests};

/// What to unpack.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnpackRequest {
    /// A whole file, then deltas on it in the order of their use.
    pub(crate) links: Vec<Link>,
    /// The file to write.
    pub(crate) out: PathBuf,
}

/// One archive of a chain: a whole file, or a delta on the file of the link before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The archive. All of a chain lie in one folder, which the child may read.
    pub archive: PathBuf,
    /// Bytes of the file that it makes: a whole archive may make less, nothing may make more.
    pub file_size: u64,
    /// Lower-case hexadecimal SHA-256 of that file.
    pub file_sha256: String,
}

/// Largest window: 2^24 bytes. Archives of ours are written at level 3, which uses 2^21.
const WINDOW_LOG_MAX: u32 = 24;
/// Mark of a zstd frame; skippable frames have another.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(super) fn serve(port: &Port) -> Result<(), Fault> {
    serve_requests(port, |request: UnpackRequest| reply(&unpack(&request)?)).map_err(Fault::from)
}

pub(super) fn corrupt(message: &str) -> Fault {
    Fault::new(FaultKind::Corrupt, message)
}

/// Gives the bytes that were written.
fn unpack(request: &UnpackRequest) -> Result<u64, Fault> {
    let Some((whole, deltas)) = request.links.split_first() else {
        return Err(Fault::new(FaultKind::Internal, "no archive to unpack"));
    };
    let mut overlay: Option<Overlay> = None;
    let mut before = whole;
    for delta in deltas {
        let mut known = overlay.take().map_or_else(|| Overlay::new(&request.out), Ok)?;
        let room = Overlay::room(delta.file_size);
        decode(&delta.archive, room, |frame| known.add(frame, &before.file_sha256, delta.file_size))?;
        overlay = Some(known);
        before = delta;
    }
    // Not truncated or made anew: the parent reads this very file while it grows.
    let mut out = File::options().write(true).create(true).truncate(false).open(&request.out)?;
    let written = decode(&whole.archive, whole.file_size, |frame| match &mut overlay {
        None => copy(frame, &mut out),
        Some(overlay) => overlay.apply(frame, &mut out),
    })?;
    if let Some(overlay) = overlay {
        overlay.remove()?;
    }
    Ok(written)
}

/// Hands the content of an archive to `read`, which sees an error at `max_bytes`. The whole frame has been
/// read when this returns, and it was the only one.
fn decode<T>(
    archive: &Path,
    max_bytes: u64,
    read: impl FnOnce(&mut Bounded<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut input = BufReader::with_capacity(1 << 17, File::open(archive)?);
    if input.fill_buf()?.get(..4) != Some(&MAGIC) {
        return Err(corrupt("it does not begin with a zstd frame"));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut input)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut frame = Bounded { source: &mut decoder, left: max_bytes };
    let value = read(&mut frame)?;
    let mut rest = [0; 1 << 12];
    while frame.read(&mut rest)? > 0 {}
    drop(decoder);
    if input.read(&mut rest)? > 0 {
        return Err(corrupt("bytes follow after its frame"));
    }
    Ok(value)
}

/// The content of a frame, up to a bound.
pub(super) struct Bounded<'f> {
    source: &'f mut dyn Read,
    left: u64,
}

impl Bounded<'_> {
    /// As [`Read::read`], with the faults of an archive.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let n = self.source.read(into).map_err(|e| reading(&e))?;
        let left = self.left.checked_sub(n as u64);
        self.left = left.ok_or_else(|| Fault::new(FaultKind::Full, "too large"))?;
        Ok(n)
    }

    /// Reads until `into` is full or the content ends.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}

fn copy(frame: &mut Bounded<'_>, out: &mut File) -> Result<u64, Fault> {
    let mut block = vec![0; 1 << 18];
    loop {
        match frame.read(&mut block)? {
            0 => return Ok(out.stream_position()?),
            n => out.write_all(&block[..n])?,
        }
    }
}

/// The decoder gives every fault of its own as the kind `Other`; a window beyond the bound is told by its text.
fn reading(error: &std::io::Error) -> Fault {
    let message = error.to_string();
    if message.contains("too much memory") {
        return Fault::new(FaultKind::Full, message);
    }
    if error.raw_os_error().is_some() {
        return Fault::new(FaultKind::Io, message);
    }
    corrupt(&format!("it can't be decoded ({message})"))
}
