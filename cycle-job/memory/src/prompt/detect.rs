//! What the text of a column is: 25 types, told from samples.
//!
//! A type is a hint to a reader, so precision counts more than recall: each detector is held to 0.95 on
//! samples of both kinds.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::civil;

use crate::functions::{email, url};
use crate::mounts::rules::parse_time;

/// One of the detected types.
type Detector = (&'static str, fn(&str) -> bool);

/// Types of single values, most special first: the first that fits names the column.
pub(crate) const VALUES: &[Detector] = &[
    ("boolean-like", is_boolean),
    ("UUID", is_uuid),
    ("email", |t| email(t).is_some()),
    ("URL", |t| url(t).is_some_and(|u| u.scheme != "file")),
    ("ISO date", is_date),
    ("date-time", is_date_time),
    ("unix time", is_unix_time),
    ("IPv4", |t| t.parse::<Ipv4Addr>().is_ok()),
    ("IPv6", |t| t.contains(':') && t.parse::<Ipv6Addr>().is_ok()),
    ("hex color", is_color),
    ("percentage", is_percentage),
    ("currency amount", is_currency),
    ("JSON object", |t| is_json(t, '{')),
    ("JSON array", |t| is_json(t, '[')),
    ("MIME type", is_mime),
    ("hash", is_hash),
    ("phone", is_phone),
    ("language", is_language),
    ("country", |t| t.len() == 2 && listed(COUNTRIES, t)),
    ("file path", is_path),
    ("slug", is_slug),
    ("base64", is_base64),
    ("CSV", is_csv),
];

/// Type of a column from its values (not NULL): at least three, nine of ten of one type.
pub(crate) fn column(values: &[String]) -> Option<&'static str> {
    if values.len() < 3 {
        return None;
    }
    let fits = |of: fn(&str) -> bool| values.iter().filter(|v| of(v)).count() * 10 >= values.len() * 9;
    if let Some((name, _)) = VALUES.iter().find(|(_, of)| fits(*of)) {
        return Some(name);
    }
    if is_enum(values) {
        return Some("enum-like");
    }
    is_prose(values).then_some("free text")
}

/// Few short words, each several times.
fn is_enum(values: &[String]) -> bool {
    let distinct: BTreeSet<&str> = values.iter().map(String::as_str).collect();
    let word = |t: &&str| {
        !t.is_empty() && t.len() <= 24 && t.contains(char::is_alphabetic) && t.split_whitespace().count() <= 3
    };
    values.len() >= 8
        && (2..=10).contains(&distinct.len())
        && distinct.len() * 3 <= values.len()
        && distinct.iter().all(word)
}

/// Sentences: several words, spaces between them, mostly letters.
fn is_prose(values: &[String]) -> bool {
    let sentence = |t: &String| {
        let letters = t.chars().filter(|c| c.is_alphabetic() || c.is_whitespace()).count();
        t.split_whitespace().count() >= 5 && letters * 10 >= t.chars().count() * 7
    };
    values.iter().filter(|t| sentence(t)).count() * 10 >= values.len() * 6
}

fn is_boolean(t: &str) -> bool {
    ["0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "on", "off"]
        .iter()
        .any(|b| t.eq_ignore_ascii_case(b))
}

fn is_uuid(t: &str) -> bool {
    let parts: Vec<&str> = t.split('-').collect();
    parts.iter().map(|p| p.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(|p| is_hex(p))
}

fn is_hex(t: &str) -> bool {
    !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_date(t: &str) -> bool {
    t.len() == 10 && t.parse::<civil::Date>().is_ok() && t.as_bytes()[4] == b'-'
}

fn is_date_time(t: &str) -> bool {
    t.len() >= 16 && t.len() <= 35 && t.is_char_boundary(10) && is_date(&t[..10]) && parse_time(t).is_some()
}

/// Seconds or milliseconds of the years 2000 to 2100.
fn is_unix_time(t: &str) -> bool {
    let seconds = |n: i64| (946_684_800..4_102_444_800).contains(&n);
    let digits = t.bytes().all(|b| b.is_ascii_digit());
    digits
        && t.parse::<i64>().is_ok_and(|n| match t.len() {
            9 | 10 => seconds(n),
            12 | 13 => seconds(n / 1000),
            _ => false,
        })
}

fn is_color(t: &str) -> bool {
    t.strip_prefix('#').is_some_and(|h| matches!(h.len(), 3 | 6 | 8) && is_hex(h))
}

/// Digits with at most one decimal mark and separators between groups of three.
fn is_amount(t: &str) -> bool {
    let t = t.trim_start_matches(['-', '+']).trim();
    let (whole, part) = t.rsplit_once(['.', ',']).filter(|(_, p)| p.len() != 3).unwrap_or((t, ""));
    let groups: Vec<&str> = whole.split(['.', ',', ' ', '\'']).collect();
    let digits = |g: &str| !g.is_empty() && g.bytes().all(|b| b.is_ascii_digit());
    let grouped = groups.len() == 1 || (groups[0].len() <= 3 && groups[1..].iter().all(|g| g.len() == 3));
    grouped && groups.iter().all(|g| digits(g)) && (part.is_empty() || (digits(part) && part.len() <= 4))
}

fn is_percentage(t: &str) -> bool {
    t.strip_suffix('%').is_some_and(|n| is_amount(n.trim_end()))
}

fn is_currency(t: &str) -> bool {
    const SYMBOLS: &[char] = &['$', '€', '£', '¥', '₹', '₽', '₩', '₺', '₪', '฿'];
    const CODES: &str =
        "USD EUR GBP JPY CHF CNY INR AUD CAD SEK NOK DKK PLN CZK BRL MXN ZAR KRW SGD HKD NZD TRY RUB";
    let signless = t.trim_start_matches(['-', '+']);
    let by_symbol = signless.strip_prefix(SYMBOLS).or_else(|| signless.strip_suffix(SYMBOLS));
    let by_code = || {
        let (a, b) = t.split_once(' ')?;
        if listed(CODES, a) {
            Some(b)
        } else {
            t.rsplit_once(' ').filter(|(_, code)| listed(CODES, code)).map(|(n, _)| n)
        }
    };
    by_symbol.or_else(by_code).is_some_and(|n| is_amount(n.trim()))
}

fn is_json(t: &str, open: char) -> bool {
    let t = t.trim();
    t.starts_with(open) && serde_json::from_str::<serde::de::IgnoredAny>(t).is_ok()
}

fn is_mime(t: &str) -> bool {
    let (kind, sub) = t.split(';').next().unwrap_or("").split_once('/').unwrap_or(("", ""));
    listed("application audio font image message model multipart text video", kind)
        && !sub.is_empty()
        && sub.trim().bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
        && !sub.ends_with(".txt")
}

fn is_hash(t: &str) -> bool {
    matches!(t.len(), 32 | 40 | 56 | 64 | 96 | 128)
        && is_hex(t)
        && t.bytes().any(|b| b.is_ascii_digit())
        && t.bytes().any(|b| b.is_ascii_alphabetic())
}

/// 7 to 15 digits in groups, with a plus, brackets or separators; no date, no address, no decimal.
fn is_phone(t: &str) -> bool {
    let digits = t.bytes().filter(u8::is_ascii_digit).count();
    let charset = t.bytes().all(|b| b.is_ascii_digit() || b"+()-. /".contains(&b));
    if !(7..=15).contains(&digits) || !charset || t.rfind('+').is_some_and(|n| n > 0) {
        return false;
    }
    let groups: Vec<usize> =
        t.split(|c: char| !c.is_ascii_digit()).filter(|g| !g.is_empty()).map(str::len).collect();
    let marked = t.starts_with('+') || t.starts_with('(');
    let separators = t.bytes().filter(|b| b"-. /".contains(b)).count();
    let dotted = t.contains('.') && (t.matches('.').count() == 1 || groups.iter().any(|g| *g < 2));
    let date_or_number = groups == [4, 2, 2] || groups == [2, 2, 4] || groups == [3, 2, 4] || dotted;
    let grouped = separators >= 1
        && groups.len() >= 2
        && groups.last().is_some_and(|g| *g >= 4)
        && groups.iter().all(|g| *g >= 2);
    marked && !dotted || grouped && !date_or_number && !t.contains("--") && !t.starts_with('-')
}

fn is_language(t: &str) -> bool {
    let (code, region) = t.split_once(['-', '_']).map_or((t, None), |(c, r)| (c, Some(r)));
    let region_ok = region.is_none_or(|r| {
        (r.len() == 2 && listed(COUNTRIES, r)) || matches!(r, "Hans" | "Hant" | "419" | "Latn" | "Cyrl")
    });
    code.len() == 2 && listed(LANGUAGES, code) && region_ok
}

fn is_path(t: &str) -> bool {
    let windows = t.as_bytes().get(1) == Some(&b':')
        && t.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && t.get(2..3) == Some("\\");
    let rooted =
        ["/", "./", "../", "~/"].iter().any(|p| t.starts_with(p)) && t.len() > 2 && !t.starts_with("//");
    let extension = t.rsplit_once('.').is_some_and(|(base, e)| {
        base.contains('/')
            && (1..=6).contains(&e.len())
            && e.bytes().all(|b| b.is_ascii_alphanumeric())
            && e.contains(char::is_alphabetic)
    });
    let sane = !t.contains(['\n', '<', '>', '|', '?', '*']) && !t.contains("://") && t.len() <= 1024;
    let plain = !t.split('/').any(|part| part.split(' ').count() > 3);
    sane && plain && (windows || rooted || (extension && !t.contains("www.")))
}

fn is_slug(t: &str) -> bool {
    let parts: Vec<&str> = t.split('-').collect();
    let part = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let letters = t.bytes().filter(u8::is_ascii_lowercase).count();
    parts.len() >= 2
        && t.len() <= 120
        && parts.iter().all(|p| part(p))
        && letters >= 4
        && letters * 2 >= t.len()
}

fn is_base64(t: &str) -> bool {
    let body = t.trim_end_matches('=');
    let padding = t.len() - body.len();
    let any = |of: fn(&u8) -> bool| body.as_bytes().iter().any(of);
    let mixed = any(u8::is_ascii_uppercase)
        && any(u8::is_ascii_lowercase)
        && (any(u8::is_ascii_digit) || padding > 0);
    t.len() >= 16
        && t.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
        && mixed
        && !is_hex(t)
        && !t.starts_with('/')
}

/// Several lines of as many cells, or one list of short items without blanks after the commas.
fn is_csv(t: &str) -> bool {
    let lines: Vec<&str> = t.lines().filter(|l| !l.is_empty()).collect();
    if lines.len() >= 2 {
        return [',', ';', '\t'].iter().any(|s| {
            let count = lines[0].matches(*s).count();
            count >= 1
                && lines.iter().all(|l| l.matches(*s).count() == count && !l.contains(&format!("{s} ")))
        });
    }
    let items: Vec<&str> = t.split([',', ';']).collect();
    let item =
        |i: &&str| !i.is_empty() && i.len() <= 40 && !i.starts_with(' ') && !i.contains(['{', '(', '<', '=']);
    items.len() >= 3 && items.iter().all(item) && !is_amount(t) && !t.ends_with('.')
}

fn listed(list: &str, word: &str) -> bool {
    !word.is_empty() && list.split(' ').any(|w| w == word)
}

/// ISO 639-1.
const LANGUAGES: &str = "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu";

/// ISO 3166-1 alpha-2.
const COUNTRIES: &str = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW";

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples: `## type`, then `+ value` or `- value`; a column's values are parted by ` | `.
    const SAMPLES: &str = include_str!("../../tests/data/types.txt");

    #[test]
    fn each_type_is_detected_with_precision() {
        let mut seen = 0;
        for part in SAMPLES.split("## ").skip(1) {
            let (name, lines) = part.split_once('\n').unwrap();
            let judge = |value: &str| match VALUES.iter().find(|(n, _)| *n == name) {
                Some((_, of)) => of(value) && VALUES.iter().find(|(_, of)| of(value)).unwrap().0 == name,
                None => column(&value.split(" | ").map(str::to_owned).collect::<Vec<_>>()) == Some(name),
            };
            let of = |sign: &str| -> Vec<String> {
                lines
                    .lines()
                    .filter_map(|l| l.strip_prefix(sign))
                    .map(|l| l.replace("\\n", "\n").replace("\\t", "\t"))
                    .collect()
            };
            let (positive, negative) = (of("+ "), of("- "));
            assert!(
                positive.len() >= 20 && negative.len() >= 20,
                "{name}: {} and {}",
                positive.len(),
                negative.len()
            );
            let missed: Vec<_> = positive.iter().filter(|v| !judge(v)).collect();
            let wrong: Vec<_> = negative.iter().filter(|v| judge(v)).collect();
            let found = positive.len() - missed.len();
            assert!(found * 100 >= 95 * (found + wrong.len()), "{name}: wrong {wrong:?}");
            assert!(found * 100 >= 90 * positive.len(), "{name}: missed {missed:?}");
            seen += 1;
        }
        assert_eq!(seen, VALUES.len() + 2);
        assert_eq!(VALUES.len() + 2, 25);
    }
}
