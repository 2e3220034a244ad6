//! SQL text as tokens, by the rules of SQLite's own scanner.
//!
//! Everything that looks at statements (splitting, repair, the schema scan) works on these tokens, so
//! that a string, a comment or a quoted name is never mistaken for code.

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blanks and line breaks.
    Space,
    /// `-- ...` or `/* ... */`.
    Comment,
    /// A bare word: keyword or name.
    Word,
    /// A name in double quotes, back quotes or brackets.
    Quoted,
    /// A string in single quotes, or `x'..'`.
    Literal,
    /// A number.
    Number,
    /// `?`, `:name`, `@name`, `$name`.
    Variable,
    /// `;`.
    Semicolon,
    /// Any other character or operator.
    Other,
    /// An unfinished string or quoted name: the rest of the text.
    Open,
}

/// A token and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its text, quotes included.
    pub text: &'a str,
    /// Byte offset of its first character.
    pub start: usize,
}

impl Token<'_> {
    /// True for a bare word that equals `word`, whatever its case.
    pub fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// True for tokens that mean something.
    pub fn is_code(&self) -> bool {
        !matches!(self.kind, Kind::Space | Kind::Comment)
    }

    /// Byte offset behind its last character.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// The name that a word or quoted name stands for.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::Word => Some(self.text.to_owned()),
            Kind::Quoted => Some(unquote(self.text)),
            _ => None,
        }
    }
}

/// The text inside any of SQLite's four quotings.
pub(crate) fn unquote(text: &str) -> String {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    match text.as_bytes().first() {
        Some(b'"') => inner.replace("\"\"", "\""),
        Some(b'`') => inner.replace("``", "`"),
        Some(b'\'') => inner.replace("''", "'"),
        Some(b'[') => inner.to_owned(),
        _ => text.to_owned(),
    }
}

/// All tokens of `sql`, gaps included: their texts joined are the input.
pub fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < sql.len() {
        let (kind, len) = next(&sql[at..]);
        out.push(Token { kind, text: &sql[at..at + len], start: at });
        at += len;
    }
    out
}

/// Kind and length of the first token of a text that is not empty.
fn next(s: &str) -> (Kind, usize) {
    let b = s.as_bytes();
    match b[0] {
        b' ' | b'\t' | b'\n' | b'\r' | 0x0c => {
            (Kind::Space, run(b, |c| matches!(c, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)))
        }
        b'-' if b.get(1) == Some(&b'-') => (Kind::Comment, s.find('\n').unwrap_or(s.len())),
        b'/' if b.get(1) == Some(&b'*') => {
            // SQLite takes an open one for a comment to the end.
            (Kind::Comment, s[2..].find("*/").map_or(s.len(), |n| n + 4))
        }
        b'\'' => quoted(s, b'\'', Kind::Literal),
        b'"' => quoted(s, b'"', Kind::Quoted),
        b'`' => quoted(s, b'`', Kind::Quoted),
        b'[' => s.find(']').map_or((Kind::Open, s.len()), |n| (Kind::Quoted, n + 1)),
        b'x' | b'X' if b.get(1) == Some(&b'\'') => {
            let (kind, len) = quoted(&s[1..], b'\'', Kind::Literal);
            (kind, len + 1)
        }
        b';' => (Kind::Semicolon, 1),
        b'0'..=b'9' => (Kind::Number, number(b)),
        b'.' if b.get(1).is_some_and(u8::is_ascii_digit) => (Kind::Number, number(b)),
        b'?' => (Kind::Variable, 1 + run(&b[1..], |c| c.is_ascii_digit())),
        b':' | b'@' | b'$' | b'#' if b.get(1).is_some_and(|c| word_byte(*c)) => {
            (Kind::Variable, 1 + run(&b[1..], word_byte))
        }
        c if word_byte(c) => (Kind::Word, run(b, word_byte)),
        _ => (Kind::Other, operator(b)),
    }
}

fn operator(b: &[u8]) -> usize {
    const LONG: [&[u8]; 9] = [b"->>", b"||", b"<=", b">=", b"<>", b"!=", b"==", b"<<", b"->"];
    LONG.iter().find(|o| b.starts_with(o)).map_or(1, |o| o.len())
}

/// Letters, digits, `_`, `$` and every byte above 127, as SQLite has it.
fn word_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$' || c >= 0x80
}

fn run(b: &[u8], of: impl Fn(u8) -> bool) -> usize {
    b.iter().position(|c| !of(*c)).unwrap_or(b.len())
}

fn number(b: &[u8]) -> usize {
    let mut at = 0;
    while at < b.len() {
        let sign = matches!(b[at], b'+' | b'-') && matches!(b[at - 1], b'e' | b'E') && !b.starts_with(b"0x");
        if !(word_byte(b[at]) || b[at] == b'.' || (at > 0 && sign)) {
            break;
        }
        at += 1;
    }
    at
}

fn quoted(s: &str, quote: u8, kind: Kind) -> (Kind, usize) {
    let b = s.as_bytes();
    let mut at = 1;
    while at < b.len() {
        if b[at] == quote {
            if b.get(at + 1) == Some(&quote) {
                at += 1;
            } else {
                return (kind, at + 1);
            }
        }
        at += 1;
    }
    (Kind::Open, s.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<(Kind, &str)> {
        tokens(sql).into_iter().filter(Token::is_code).map(|t| (t.kind, t.text)).collect()
    }

    #[test]
    fn quotes_comments_and_numbers_are_single_tokens() {
        let sql = "select 'a;''b', \"c\"\"d\", `e`, [f;g], x'00ff', 1.5e-3, ?1, :v -- ;\n/* ; */ ;";
        assert_eq!(
            kinds(sql).iter().map(|(_, t)| *t).collect::<Vec<_>>(),
            [
                "select",
                "'a;''b'",
                ",",
                "\"c\"\"d\"",
                ",",
                "`e`",
                ",",
                "[f;g]",
                ",",
                "x'00ff'",
                ",",
                "1.5e-3",
                ",",
                "?1",
                ",",
                ":v",
                ";"
            ]
        );
        assert_eq!(kinds("'open")[0].0, Kind::Open);
        assert_eq!(kinds("1-2").len(), 3);
    }

    #[test]
    fn the_tokens_joined_are_the_input() {
        for sql in ["", "größe='ä' 🙂", "a->>'$.b'", "/* open", "x'", "'", "--", ".5", "0x1Fe-1"] {
            assert_eq!(tokens(sql).iter().map(|t| t.text).collect::<String>(), sql);
        }
    }
}
