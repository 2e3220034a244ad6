//! The pages that deltas put over a whole file. `cicada-store` writes deltas and documents their form.
//!
//! The newest page of each number is kept in a file of its own, and the result is then written from
//! beginning to end: the parent hashes it on the way, and nothing is written twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::unpack::{Bounded, corrupt};
use crate::protocol::{Fault, FaultKind};

/// Extension of the file that holds the pages meanwhile.
pub(crate) const PAGES: &str = "pages";
/// Mark of a delta without its version.
const MARK: &[u8] = b"cicada delta v";
/// Mark and version that this release knows.
const MAGIC: &[u8; 16] = b"cicada delta v1\n";
/// Bytes before the first page.
const HEADER: usize = 56;
/// Read at once; a multiple of every page size.
const BLOCK: usize = 1 << 20;

/// Pages by number, from 1.
pub(super) struct Overlay {
    path: PathBuf,
    file: File,
    /// Where in `file` a page lies, in pages.
    slots: BTreeMap<u32, u32>,
    free: Vec<u32>,
    used: u32,
    /// 0 before the first delta.
    page_size: usize,
    /// Of the file that the last delta makes.
    pages: u32,
}

impl Overlay {
    /// For the file `out`; the pages lie beside it.
    pub(super) fn new(out: &Path) -> Result<Self, Fault> {
        let path = out.with_extension(PAGES);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Self { path, file, slots: BTreeMap::new(), free: vec![], used: 0, page_size: 0, pages: 0 })
    }

    /// Most bytes of a delta that makes a file of `file_size` bytes: every page, and its number.
    pub(super) fn room(file_size: u64) -> u64 {
        (HEADER as u64 + 4).saturating_add(file_size).saturating_add(file_size / 512 * 4)
    }

    /// Takes the pages of the next delta, which must be one on the file with SHA-256 `parent` and make one of
    /// `file_size` bytes.
    pub(super) fn add(&mut self, frame: &mut Bounded<'_>, parent: &str, file_size: u64) -> Result<(), Fault> {
        self.header(frame, parent, file_size)?;
        let mut page = vec![0; self.page_size];
        let mut last = 0;
        loop {
            let number = number(frame)?;
            if number == 0 {
                break;
            }
            if number <= last || number > self.pages {
                return Err(corrupt("its pages are not in order"));
            }
            last = number;
            if frame.fill(&mut page)? < page.len() {
                return Err(corrupt("it ends within a page"));
            }
            let slot = self.slot(number);
            self.file.write_all_at(&page, u64::from(slot) * self.page_size as u64)?;
        }
        if frame.read(&mut page)? > 0 {
            return Err(corrupt("bytes follow after its last page"));
        }
        Ok(())
    }

    fn header(&mut self, frame: &mut Bounded<'_>, parent: &str, file_size: u64) -> Result<(), Fault> {
        let mut header = [0; HEADER];
        let read = frame.fill(&mut header)?;
        if !header.starts_with(MAGIC) {
            if header.starts_with(MARK) {
                let version = String::from_utf8_lossy(&header[MARK.len()..16]).trim_end().to_owned();
                return Err(Fault::new(
                    FaultKind::Schema,
                    format!("a delta of the unknown version {version:?}"),
                ));
            }
            return Err(corrupt("it is no delta"));
        }
        if read < HEADER {
            return Err(corrupt("it ends within its header"));
        }
        let field = |at: usize| header[at..at + 4].iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte));
        let (page_size, pages) = (field(16), field(20));
        if hex::encode(&header[24..]) != parent {
            return Err(corrupt("it holds the changes against another file"));
        }
        let is_size = page_size.is_power_of_two() && (512..=65_536).contains(&page_size);
        let known = self.page_size;
        let page_bytes = usize::try_from(page_size).unwrap_or(0);
        if !is_size || (known != 0 && known != page_bytes) {
            return Err(corrupt("its page size is not that of the file"));
        }
        if u64::from(page_size) * u64::from(pages) != file_size {
            return Err(corrupt("it makes a file of another size than HEAD says"));
        }
        self.page_size = page_bytes;
        self.pages = pages;
        // The file has shrunk: should it grow again, its new pages are in the delta that lets it grow.
        let gone = self.slots.split_off(&pages.saturating_add(1));
        self.free.extend(gone.into_values());
        Ok(())
    }

    fn slot(&mut self, number: u32) -> u32 {
        *self.slots.entry(number).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.used += 1;
                self.used - 1
            })
        })
    }

    /// Writes `whole` to `out` with the pages in place; gives the bytes written.
    pub(super) fn apply(&self, whole: &mut Bounded<'_>, out: &mut File) -> Result<u64, Fault> {
        let size = u64::from(self.pages) * self.page_size as u64;
        let mut block = vec![0; BLOCK];
        let mut at = 0;
        while at < size {
            let filled = whole.fill(&mut block)?;
            if !filled.is_multiple_of(self.page_size) {
                return Err(corrupt("the file below it does not end with a page"));
            }
            let filled = self.patch(at, &mut block, filled)?;
            if filled == 0 {
                return Err(corrupt("pages of the file are in none of its archives"));
            }
            let wanted = usize::try_from((size - at).min(filled as u64)).unwrap_or(filled);
            out.write_all(&block[..wanted])?;
            at += wanted as u64;
        }
        Ok(out.stream_position()?)
    }

    /// Puts pages into the block at offset `at`, of which `filled` bytes are there; gives how many are then.
    fn patch(&self, at: u64, block: &mut [u8], mut filled: usize) -> Result<usize, Fault> {
        let page_size = self.page_size;
        let before = u32::try_from(at / page_size as u64).unwrap_or(u32::MAX);
        for (number, slot) in self.slots.range(before.saturating_add(1)..) {
            let offset = (number - before - 1) as usize * page_size;
            if offset > filled || offset + page_size > block.len() {
                break;
            }
            let page = &mut block[offset..offset + page_size];
            self.file.read_exact_at(page, u64::from(*slot) * page_size as u64)?;
            filled = filled.max(offset + page_size);
        }
        Ok(filled)
    }

    /// Removes the file of the pages.
    pub(super) fn remove(self) -> Result<(), Fault> {
        Ok(std::fs::remove_file(&self.path)?)
    }
}

fn number(frame: &mut Bounded<'_>) -> Result<u32, Fault> {
    let mut bytes = [0; 4];
    if frame.fill(&mut bytes)? < bytes.len() {
        return Err(corrupt("it ends before its last page"));
    }
    Ok(u32::from_be_bytes(bytes))
}
