//! Cutting and hashing of text that leaves the process.

use sha2::{Digest, Sha256};

/// At most `max` bytes of `text`, cut at a character, with `…` where something was left out.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if max < '…'.len_utf8() {
        return text[..end].to_owned();
    }
    format!("{}…", &text[..end])
}

/// `text` without control characters (line breaks become spaces): status and events show printable text only.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(bytes.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_exceeds_its_bound_nor_splits_a_character() {
        for max in 0..40 {
            let short = cut("Grüße aus Köln: ein Satz mit Umlauten 😀😀", max);
            assert!(short.len() <= max, "{max}: {short}");
        }
        assert_eq!(cut("kurz", 10), "kurz");
        assert_eq!(cut("abcdefgh", 6), "abc…");
    }
}
