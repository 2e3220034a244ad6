//! Unpacking in the child: one frame, a bounded window, a bounded output.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::protocol::{Fault, FaultKind, Port, WorkerArgs, reply, serve as serve_requests};

/// What was written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnpackReply {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// Largest window: 2^24 bytes. Archives of ours are written at level 3, which uses 2^21.
const WINDOW_LOG_MAX: u32 = 24;
/// Mark of a zstd frame; skippable frames have another.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(super) fn serve(port: &Port, options: &WorkerArgs) -> Result<(), Fault> {
    serve_requests(port, |(archive, out): (PathBuf, PathBuf)| {
        reply(&unpack(&archive, &out, options.size_limit)?)
    })
    .map_err(Fault::from)
}

fn corrupt(message: &str) -> Fault {
    Fault::new(FaultKind::Corrupt, message)
}

fn unpack(archive: &Path, out: &Path, max_bytes: u64) -> Result<UnpackReply, Fault> {
    let mut input = BufReader::with_capacity(1 << 17, File::open(archive)?);
    if std::io::BufRead::fill_buf(&mut input)?.get(..4) != Some(&MAGIC) {
        return Err(corrupt("it does not begin with a zstd frame"));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut input)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut output = File::create(out)?;
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut part = vec![0; 1 << 18];
    loop {
        let n = decoder.read(&mut part).map_err(|e| reading(&e))?;
        if n == 0 {
            break;
        }
        size += n as u64;
        if size > max_bytes {
            return Err(Fault::new(FaultKind::Full, "too large"));
        }
        hash.update(&part[..n]);
        output.write_all(&part[..n])?;
    }
    drop(decoder);
    if input.read(&mut part)? > 0 {
        return Err(corrupt("bytes follow after its frame"));
    }
    Ok(UnpackReply { size, sha256: hex::encode(hash.finalize()) })
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
