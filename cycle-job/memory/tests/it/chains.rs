//! Deltas on a whole archive: what is made of them, and the class of each thing that can be wrong.

use std::path::PathBuf;
use std::time::Duration;

use cicada_contract::text::sha256_hex;
use cicada_memory::{Link, UnpackError, UnpackLimits, Unpacked, unpack_chain};

use crate::support::{Place, launcher};

const PAGE: usize = 512;

/// A file of pages, each filled with one byte.
fn file(pages: &[u8]) -> Vec<u8> {
    pages.iter().flat_map(|byte| [*byte; PAGE]).collect()
}

/// The content of a delta.
struct Delta {
    magic: [u8; 16],
    page_size: u32,
    pages: u32,
    parent: String,
    changes: Vec<(u32, Vec<u8>)>,
    end: Vec<u8>,
}

impl Delta {
    fn new(parent: &[u8], pages: u32, changes: &[(u32, u8)]) -> Self {
        Self {
            magic: *b"cicada delta v1\n",
            page_size: 512,
            pages,
            parent: sha256_hex(parent),
            changes: changes.iter().map(|(number, byte)| (*number, vec![*byte; PAGE])).collect(),
            end: vec![0; 4],
        }
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.page_size.to_be_bytes());
        bytes.extend(self.pages.to_be_bytes());
        bytes.extend(hex::decode(&self.parent).unwrap());
        for (number, page) in &self.changes {
            bytes.extend(number.to_be_bytes());
            bytes.extend(page);
        }
        bytes.extend(&self.end);
        bytes
    }

    fn packed(&self) -> Vec<u8> {
        zstd::encode_all(&self.content()[..], 3).unwrap()
    }
}

struct Bench {
    place: Place,
    links: Vec<Link>,
}

impl Bench {
    fn new(whole: &[u8]) -> Self {
        let mut bench = Self { place: Place::new(), links: vec![] };
        bench.add(&zstd::encode_all(whole, 3).unwrap(), whole);
        bench
    }

    fn archive(&self, n: usize) -> PathBuf {
        self.place.dir.path().join(format!("{n}.zst"))
    }

    /// The next archive, and the file that it is said to make.
    fn add(&mut self, archive: &[u8], file: &[u8]) {
        let path = self.archive(self.links.len());
        std::fs::write(&path, archive).unwrap();
        self.links.push(Link { archive: path, file_size: file.len() as u64, file_sha256: sha256_hex(file) });
    }

    fn out(&self) -> PathBuf {
        self.place.memory_dir().join("memory.db")
    }

    fn unpack(&self) -> Result<(Unpacked, Vec<u8>), UnpackError> {
        let limits = UnpackLimits { timeout: Duration::from_secs(20), ..UnpackLimits::default() };
        let mut seen = vec![];
        let done = unpack_chain(&launcher(), &self.links, &self.out(), limits, |bytes| {
            seen.extend_from_slice(bytes)
        });
        assert_eq!(done.is_ok(), self.out().exists(), "nothing half unpacked is left");
        let left: Vec<_> =
            std::fs::read_dir(self.place.memory_dir()).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.iter().all(|path| path.ends_with("files") || *path == self.out()), "{left:?}");
        done.map(|unpacked| (unpacked, seen))
    }
}

#[test]
fn the_newest_page_of_each_number_counts() {
    let whole = file(&[1, 2, 3, 4, 5]);
    let mut bench = Bench::new(&whole);
    let second = file(&[1, 20, 3]);
    bench.add(&Delta::new(&whole, 3, &[(2, 20)]).packed(), &second);
    let third = file(&[1, 20, 30, 6, 7, 8, 9]);
    bench.add(&Delta::new(&second, 7, &[(3, 30), (4, 6), (5, 7), (6, 8), (7, 9)]).packed(), &third);
    let fourth = file(&[1, 21, 30, 6, 7, 8]);
    bench.add(&Delta::new(&third, 6, &[(2, 21)]).packed(), &fourth);
    for (length, expected) in [(1, &whole), (2, &second), (3, &third), (4, &fourth)] {
        let part = Bench { place: Place::new(), links: bench.links[..length].to_vec() };
        let (unpacked, seen) = part.unpack().unwrap();
        assert!(std::fs::read(part.out()).unwrap() == *expected, "{length} links");
        assert!(seen == *expected, "the parent sees what was written");
        assert_eq!((unpacked.size, unpacked.sha256), (expected.len() as u64, sha256_hex(expected)));
    }
}

#[test]
fn files_of_many_blocks_come_back_whole() {
    let pages: Vec<u8> = (0..9001_u32).map(|n| (n % 251) as u8).collect();
    let whole = file(&pages);
    let mut bench = Bench::new(&whole);
    let changes: Vec<(u32, u8)> = (0..9001).step_by(97).map(|n| (n + 1, 255)).chain([(9003, 254)]).collect();
    let mut next = pages.clone();
    next.extend([253, 254]);
    for (number, byte) in changes.iter().take(changes.len() - 1) {
        next[*number as usize - 1] = *byte;
    }
    let mut changes = changes;
    changes.insert(changes.len() - 1, (9002, 253));
    let next = file(&next);
    bench.add(&Delta::new(&whole, 9003, &changes).packed(), &next);
    bench.unpack().unwrap();
    assert!(std::fs::read(bench.out()).unwrap() == next);
}

/// The class of a chain whose last archive is `archive`, which should make `file`.
fn refused(archive: &[u8], file: &[u8]) -> UnpackError {
    let mut bench = Bench::new(&self::file(&[1, 2, 3, 4]));
    bench.add(archive, file);
    bench.unpack().unwrap_err()
}

#[test]
fn deltas_of_every_wrong_kind_have_their_class() {
    let whole = file(&[1, 2, 3, 4]);
    let made = file(&[1, 9, 3, 4]);
    let good = || Delta::new(&whole, 4, &[(2, 9)]);
    let mut bench = Bench::new(&whole);
    bench.add(&good().packed(), &made);
    bench.unpack().unwrap();
    let packed = good().packed();
    let double = [good().content(), vec![1]].concat();
    for (name, archive) in [
        ("cut", packed[..packed.len() - 1].to_vec()),
        ("two frames", [packed.clone(), packed.clone()].concat()),
        ("no delta", zstd::encode_all(&whole[..], 3).unwrap()),
        ("empty", zstd::encode_all(&b""[..], 3).unwrap()),
        ("cut within its header", zstd::encode_all(&good().content()[..40], 3).unwrap()),
        ("cut within a page", zstd::encode_all(&good().content()[..100], 3).unwrap()),
        ("without its end", Delta { end: vec![], ..good() }.packed()),
        ("with bytes after its end", zstd::encode_all(&double[..], 3).unwrap()),
        ("another file's", Delta { parent: "ab".repeat(32), ..good() }.packed()),
        ("pages twice", Delta::new(&whole, 4, &[(2, 9), (2, 9)]).packed()),
        ("pages backwards", Delta::new(&whole, 4, &[(3, 3), (2, 9)]).packed()),
        ("a page beyond the file", Delta::new(&whole, 4, &[(2, 9), (5, 9)]).packed()),
        ("other content", Delta::new(&whole, 4, &[(2, 8)]).packed()),
        ("a change left out", Delta::new(&whole, 4, &[]).packed()),
        ("another size than HEAD says", Delta::new(&whole, 5, &[(2, 9), (5, 1)]).packed()),
        ("no page size", Delta { page_size: 500, ..good() }.packed()),
        ("page size 0", Delta { page_size: 0, ..good() }.packed()),
    ] {
        let error = refused(&archive, &made);
        assert!(matches!(error, UnpackError::Corrupt { .. }), "{name}: {error:?}");
    }
    let error = refused(&Delta::new(&whole, 6, &[(2, 9), (6, 1)]).packed(), &file(&[1, 9, 3, 4, 0, 1]));
    assert!(
        matches!(&error, UnpackError::Corrupt { reason } if reason.contains("none of its archives")),
        "{error}"
    );
    let later = Delta { magic: *b"cicada delta v2\n", ..good() };
    let error = refused(&later.packed(), &made);
    assert!(matches!(error, UnpackError::Version { .. }), "{error:?}");
    assert!(error.to_string().contains("use the release that wrote"), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn a_chain_in_another_order_or_with_a_link_missing_or_swapped_is_damaged() {
    let files = [file(&[1, 2, 3, 4]), file(&[1, 9, 3, 4]), file(&[1, 9, 8, 4]), file(&[1, 9, 8, 7])];
    let changes = [(2, 9), (3, 8), (4, 7)];
    let chain = || {
        let mut bench = Bench::new(&files[0]);
        for (n, change) in changes.iter().enumerate() {
            bench.add(&Delta::new(&files[n], 4, &[*change]).packed(), &files[n + 1]);
        }
        bench
    };
    assert!(chain().unpack().is_ok());
    let mut reordered = chain();
    reordered.links.swap(1, 2);
    let mut missing = chain();
    missing.links.remove(2);
    let mut swapped = chain();
    swapped.links[2].archive = swapped.links[1].archive.clone();
    let mut without_whole = chain();
    without_whole.links.remove(0);
    for (name, bench) in
        [("reordered", reordered), ("missing", missing), ("swapped", swapped), ("no whole", without_whole)]
    {
        let error = bench.unpack().unwrap_err();
        assert!(matches!(error, UnpackError::Corrupt { .. }), "{name}: {error:?}");
    }
    let gone = chain();
    std::fs::remove_file(gone.archive(1)).unwrap();
    let error = gone.unpack().unwrap_err();
    assert!(matches!(error, UnpackError::Io { .. }), "what is not there is not damaged: {error:?}");
}

#[test]
fn a_delta_that_unpacks_to_gigabytes_is_a_bomb() {
    let whole = file(&[1, 2, 3, 4]);
    let good = Delta::new(&whole, 4, &[(2, 9)]);
    let zeros = std::io::Read::take(std::io::repeat(0), 4 << 30);
    let header = good.content();
    // After the end mark zeros follow, and they are many.
    let endless = zstd::encode_all(std::io::Read::chain(&header[..], zeros), 1).unwrap();
    let error = refused(&endless, &file(&[1, 9, 3, 4]));
    assert!(matches!(error, UnpackError::Corrupt { .. } | UnpackError::Bomb { .. }), "{error:?}");
    // Every page, again and again, would be more than its file: the order of numbers ends it.
    let mut all = Delta::new(&whole, 4, &[]);
    all.changes = (0..100_000).map(|n| (n % 4 + 1, vec![0; PAGE])).collect();
    let error = refused(&all.packed(), &file(&[0; 4]));
    assert!(matches!(error, UnpackError::Corrupt { .. } | UnpackError::Bomb { .. }), "{error:?}");
    let mut bench = Bench::new(&whole);
    bench.links[0].file_size = 100;
    bench.add(&good.packed(), &file(&[1, 9, 3, 4]));
    assert!(
        matches!(bench.unpack(), Err(UnpackError::Bomb { .. })),
        "the whole archive is larger than HEAD says"
    );
}
