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

/// `text` as one line that no reader obeys: control characters (line breaks, too) become spaces, and marks that
/// turn the reading direction or hide become `\u{fffd}`. Status and events show printable text only.
pub fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_control() => ' ',
        // Joiners: without them emoji and some scripts fall apart.
        '\u{200c}' | '\u{200d}' => c,
        c if is_invisible(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// `text` as one line from which it can be told what it was: `\n`, `\r`, `\t`, and `\u{1b}` for every other
/// control character and every mark that turns the reading direction or hides.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Marks that turn the reading direction, break lines or hide: text of strangers must not rearrange ours.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A number of bytes for people: `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    let mut unit = 0;
    // What would be rounded to 1024.0 is one of the next unit.
    while value >= 1023.95 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
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

    #[test]
    fn no_reader_obeys_what_is_shown() {
        let nasty = "\u{1b}[31mred\u{7}\n\u{9b}2J \u{202e}txt.exe\u{2066}\u{2028}👩\u{200d}🚀";
        assert_eq!(printable(nasty), " [31mred   2J �txt.exe��👩\u{200d}🚀");
        let told = r"\u{1b}[31mred\u{7}\n\u{9b}2J \u{202e}txt.exe\u{2066}\u{2028}👩\u{200d}🚀";
        assert_eq!(escaped(nasty), told);
        assert_eq!(escaped("Grüße, 你好 \\n"), "Grüße, 你好 \\n");
    }

    #[test]
    fn sizes_read_like_people_write_them() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
        ];
        for (count, text) in sizes {
            assert_eq!(bytes(count), text);
        }
    }
}
