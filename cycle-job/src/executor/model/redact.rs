//! No secret leaves by a tool result, an error, a log line or an URL.
//!
//! Known values are replaced in every form in which they usually come back: plain, base64 (also inside a
//! longer encoded text), percent-encoded, JSON-escaped, hexadecimal. What is left is decoded once more and
//! looked through; if a value is still in it, the whole text is withheld.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// What stands in place of a secret.
pub const MARK: &str = "[secret]";
/// What stands in place of a text that hides one in a form of its own.
pub const WITHHELD: &str = "[withheld: it held a secret in an encoded form]";
/// Shorter values are not looked for: they would black out half of every text.
const SHORTEST: usize = 4;

/// Replaces the secrets that one cycle knows.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Vec<String>,
    search: Option<AhoCorasick>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.values.len())
    }
}

impl Redactor {
    /// A filter for these values.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values: Vec<String> =
            values.into_iter().map(|v| v.trim().to_owned()).filter(|v| v.len() >= SHORTEST).collect();
        values.sort();
        values.dedup();
        let mut needles: Vec<String> = values.iter().flat_map(|v| forms(v)).collect();
        needles.sort();
        needles.dedup();
        let search = (!needles.is_empty())
            .then(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&needles).ok())
            .flatten();
        Self { values, search }
    }

    /// `text` without secrets.
    pub fn text(&self, text: &str) -> String {
        let Some(search) = &self.search else { return text.to_owned() };
        let marks = vec![MARK; search.patterns_len()];
        let replaced = search.replace_all(text, &marks);
        if self.hidden_in(&replaced) { WITHHELD.to_owned() } else { replaced }
    }

    /// `bytes` without secrets.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let Some(search) = &self.search else { return bytes.to_vec() };
        let marks = vec![MARK; search.patterns_len()];
        let replaced = search.replace_all_bytes(bytes, &marks);
        if self.hidden_in(&String::from_utf8_lossy(&replaced)) {
            WITHHELD.as_bytes().to_vec()
        } else {
            replaced
        }
    }

    /// True if a value shows after percent and JSON escapes are undone, twice over.
    fn hidden_in(&self, text: &str) -> bool {
        let shows = |text: &str| self.values.iter().any(|v| text.contains(v.as_str()));
        let mut text = std::borrow::Cow::Borrowed(text);
        for _ in 0..2 {
            if !text.contains(['%', '\\', '&', '+']) {
                return false;
            }
            // Forms write a blank as `+`.
            let has_plus = text.contains('+');
            if has_plus && shows(&unescape(&text.replace('+', " "))) {
                return true;
            }
            text = unescape(&text).into();
            if shows(&text) {
                return true;
            }
        }
        false
    }
}

/// The forms of one value.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let percent = |keep: &dyn Fn(u8) -> bool, upper: bool| {
        value.bytes().fold(String::new(), |mut text, b| {
            match (keep(b), upper) {
                (true, _) => text.push(char::from(b)),
                (false, true) => text.push_str(&format!("%{b:02X}")),
                (false, false) => text.push_str(&format!("%{b:02x}")),
            }
            text
        })
    };
    for upper in [true, false] {
        let encoded = percent(&unreserved, upper);
        forms.push(encoded.replace("%20", "+"));
        forms.push(encoded);
        forms.push(percent(&|_| false, upper));
    }
    if let Ok(json) = serde_json::to_string(value) {
        let inner = json[1..json.len() - 1].to_owned();
        forms.push(inner.replace('/', "\\/"));
        forms.push(inner);
    }
    // Inside a longer base64 text the value may begin at any of three positions; the characters at its
    // borders depend on its neighbours and are left out.
    for (skip, prefix) in [(0, ""), (2, "\0"), (3, "\0\0")] {
        let bytes = [prefix.as_bytes(), value.as_bytes()].concat();
        let sure = bytes.len() * 8 / 6;
        for encoded in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            if sure.saturating_sub(skip) >= 6 {
                forms.push(encoded[skip..sure].to_owned());
            }
        }
    }
    if value.len() >= 6 {
        let hex: String = value.bytes().map(|b| format!("{b:02x}")).collect();
        forms.push(hex.to_uppercase());
        forms.push(hex);
    }
    forms
}

/// Undoes percent, JSON (`\uXXXX`, `\/`) and numeric HTML escapes, leniently.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let hex =
        |from: usize, len: usize| text.get(from..from + len).and_then(|h| u32::from_str_radix(h, 16).ok());
    while at < bytes.len() {
        let (decoded, used) = match bytes[at] {
            b'%' => match hex(at + 1, 2) {
                Some(n) => (Some(vec![u8::try_from(n).unwrap_or(b'?')]), 3),
                None => (None, 1),
            },
            b'\\' if bytes.get(at + 1) == Some(&b'u') => match hex(at + 2, 4).and_then(char::from_u32) {
                Some(c) => (Some(c.to_string().into_bytes()), 6),
                None => (None, 1),
            },
            b'\\' if matches!(bytes.get(at + 1), Some(b'/' | b'"' | b'\\')) => (Some(vec![bytes[at + 1]]), 2),
            b'&' if bytes.get(at + 1) == Some(&b'#') => html_number(text, at),
            _ => (None, 1),
        };
        match decoded {
            Some(decoded) => out.extend(decoded),
            None => out.push(bytes[at]),
        }
        at += used;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn html_number(text: &str, at: usize) -> (Option<Vec<u8>>, usize) {
    let rest = &text[at + 2..];
    let Some(end) = rest.bytes().take(8).position(|b| b == b';') else { return (None, 1) };
    let digits = &rest[..end];
    let number = match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    match number.and_then(char::from_u32) {
        Some(c) => (Some(c.to_string().into_bytes()), end + 3),
        None => (None, 1),
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "s3cr\"t/with+odd \\chars~ü?";

    fn percent(text: &str) -> String {
        text.bytes().map(|b| format!("%{b:02x}")).collect()
    }

    #[test]
    fn every_usual_form_is_replaced() {
        let redactor = Redactor::new([SECRET, "", "abc"]);
        let json = serde_json::to_string(SECRET).unwrap();
        let ascii: String = SECRET.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        let html: String = SECRET.chars().map(|c| format!("&#{};", u32::from(c))).collect();
        for form in [
            SECRET.to_owned(),
            format!("Bearer {SECRET}, again {SECRET}"),
            json[1..json.len() - 1].to_owned(),
            ascii,
            html,
            percent(SECRET),
            percent(SECRET).replace("%3f", "?").replace("%2F", "/"),
            percent(&percent(SECRET)),
            url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect(),
            hex::encode(SECRET),
        ] {
            let text = redactor.text(&format!("before {form} after"));
            assert!(text.contains(MARK) || text == WITHHELD, "{form} -> {text}");
            assert!(!text.contains("s3cr") && !text.contains("chars"), "{text}");
        }
    }

    #[test]
    fn text_without_a_secret_is_left_alone() {
        let redactor = Redactor::new([SECRET, "another-secret"]);
        let text = "100 % of \\u0041 and &#66; in https://example.org/a%20b?x=abc";
        assert_eq!(redactor.text(text), text);
        assert_eq!(Redactor::default().text(SECRET), SECRET);
    }

    #[test]
    fn debug_shows_no_value() {
        assert_eq!(format!("{:?}", Redactor::new([SECRET])), "Redactor(1 secrets)");
    }

    proptest! {
        #[test]
        fn base64_of_any_text_around_a_secret_gives_it_away_to_nobody(before in ".{0,12}", after in ".{0,12}", secret in "[ -~]{12,40}") {
            let secret = secret.trim().to_owned();
            prop_assume!(secret.len() >= 12);
            let redactor = Redactor::new([secret.as_str()]);
            for engine in [&STANDARD, &URL_SAFE] {
                let text = redactor.text(&engine.encode(format!("{before}{secret}{after}")));
                prop_assert!(text.contains(MARK), "{}", text);
            }
            let bytes = redactor.bytes(&[&[0xff, 0xfe], secret.as_bytes(), &[0xff]].concat());
            prop_assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
        }
    }
}
