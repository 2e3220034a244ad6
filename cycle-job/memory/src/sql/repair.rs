//! What models write around and into SQL, put right without changing what it says.
//!
//! Tokens are removed only outside every statement. Inside one, a spelling is replaced by another of the
//! same meaning, one for one. A literal is never touched: the multiset of literals of a statement is
//! the same before and after, which a property test holds; so no write ever reaches further.

use super::tokens::{Kind, Token, tokens};

/// Words that begin a statement.
const STARTS: &[&str] = &[
    "SELECT",
    "WITH",
    "INSERT",
    "UPDATE",
    "DELETE",
    "REPLACE",
    "CREATE",
    "ALTER",
    "DROP",
    "PRAGMA",
    "EXPLAIN",
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
    "ANALYZE",
    "REINDEX",
    "VACUUM",
    "ATTACH",
    "DETACH",
    "VALUES",
    "LOAD_TABLE",
];

fn starts_statement(text: &str) -> bool {
    let code = super::split::code(text);
    code.first().is_some_and(|first| STARTS.iter().any(|w| first.is(w)))
}

/// The batch without what stands outside its statements: a code fence, a sentence before or behind. The
/// result is a part of the input, unchanged; the second value says what was left out.
pub fn outside(sql: &str) -> (&str, Vec<String>) {
    let mut notes = vec![];
    let mut inner = sql.trim();
    if let Some(fenced) = inside_fence(inner) {
        notes.push("the code fence was left out".to_owned());
        inner = fenced.trim();
    }
    if let Some(rest) = after_sentence(inner) {
        notes.push("the text before the first statement was left out".to_owned());
        inner = rest.trim();
    }
    if let Some(rest) = before_sentence(inner) {
        notes.push("the text behind the last statement was left out".to_owned());
        inner = rest.trim();
    }
    (inner, notes)
}

/// The content of the only fenced block, if the text is one, with at most a sentence around it.
fn inside_fence(text: &str) -> Option<&str> {
    let open = if text.starts_with("```") { 0 } else { text.find("\n```")? + 1 };
    if open > 0 && (starts_statement(text) || !is_sentence(&text[..open])) {
        return None;
    }
    let language = text[open + 3..].find('\n')?;
    if !text[open + 3..open + 3 + language].trim().chars().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let content = &text[open + 3 + language + 1..];
    // The first closing fence that is not inside a string or comment.
    let mut from = 0;
    while let Some(found) = content[from..].find("```") {
        let end = from + found;
        let line_start = content[..end].rfind('\n').map_or(0, |n| n + 1);
        let whole = !tokens(&content[..line_start]).iter().any(|t| t.kind == Kind::Open);
        if content[line_start..end].trim().is_empty() && whole {
            let behind = content[end + 3..].trim();
            return (behind.is_empty() || is_sentence(behind)).then_some(&content[..line_start]);
        }
        from = end + 3;
    }
    None
}

/// Prose, beyond doubt: several words, the end of a sentence, and nothing that could be a literal, a
/// name in quotes or a statement of its own.
fn is_sentence(text: &str) -> bool {
    let text = text.trim();
    let words = text.split_whitespace().count();
    let ends = text.ends_with([':', '.', '!']);
    // An apostrophe inside a word is none of SQL's.
    let plain: String = text.replace("n't", "nt").replace("'s ", "s ").replace("'ll ", "ll ");
    let quotes = plain.contains(['\'', '"', '`', '[', ';']) || plain.contains("--") || plain.contains("/*");
    words >= 2 && ends && !quotes && !text.lines().any(starts_statement)
}

fn after_sentence(text: &str) -> Option<&str> {
    if starts_statement(text) {
        return None;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if starts_statement(line) {
            return is_sentence(&text[..at]).then_some(&text[at..]);
        }
        at += line.len();
    }
    None
}

fn before_sentence(text: &str) -> Option<&str> {
    let last = tokens(text).iter().rfind(|t| t.kind == Kind::Semicolon).map(Token::end)?;
    is_sentence(&text[last..]).then_some(&text[..last])
}

/// One spelling for another of the same meaning.
struct Spelling {
    from: &'static str,
    to: &'static str,
    kind: Place,
}

#[derive(PartialEq, Clone, Copy)]
enum Place {
    /// An operator between two operands.
    Operator,
    /// A function without arguments, its parentheses included.
    EmptyCall,
    /// The name of a function.
    Call,
    /// A word of a column definition.
    Definition,
}

const SPELLINGS: &[Spelling] = &[
    Spelling { from: "ILIKE", to: "LIKE", kind: Place::Operator },
    Spelling { from: "RLIKE", to: "REGEXP", kind: Place::Operator },
    Spelling { from: "NOW", to: "CURRENT_TIMESTAMP", kind: Place::EmptyCall },
    Spelling { from: "GETDATE", to: "CURRENT_TIMESTAMP", kind: Place::EmptyCall },
    Spelling { from: "CURDATE", to: "CURRENT_DATE", kind: Place::EmptyCall },
    Spelling { from: "CURTIME", to: "CURRENT_TIME", kind: Place::EmptyCall },
    Spelling { from: "CHAR_LENGTH", to: "length", kind: Place::Call },
    Spelling { from: "CHARACTER_LENGTH", to: "length", kind: Place::Call },
    Spelling { from: "LEN", to: "length", kind: Place::Call },
    Spelling { from: "UCASE", to: "upper", kind: Place::Call },
    Spelling { from: "LCASE", to: "lower", kind: Place::Call },
    Spelling { from: "NVL", to: "coalesce", kind: Place::Call },
    Spelling { from: "JSONB_ARRAY_LENGTH", to: "json_array_length", kind: Place::Call },
    Spelling { from: "AUTO_INCREMENT", to: "AUTOINCREMENT", kind: Place::Definition },
];

/// A statement that SQLite did not accept, in SQLite's spelling. None if there is nothing to replace.
pub fn spelling(statement: &str) -> Option<(String, Vec<String>)> {
    replace(statement, |code, n| {
        let token = code[n];
        // A name behind or before a dot is the schema's, not the language's.
        let named = |m: Option<usize>| m.and_then(|m| code.get(m)).is_some_and(|t| t.text == ".");
        if named(n.checked_sub(1)) || named(Some(n + 1)) {
            return None;
        }
        let call = code.get(n + 1).is_some_and(|t| t.text == "(");
        let empty = call && code.get(n + 2).is_some_and(|t| t.text == ")");
        let found = SPELLINGS.iter().find(|s| token.is(s.from))?;
        let fits = match found.kind {
            Place::Operator => n > 0 && !call_or_list(code, n),
            Place::EmptyCall => empty,
            Place::Call => call && !empty,
            Place::Definition => !call,
        };
        fits.then_some((found.to, if found.kind == Place::EmptyCall { 3 } else { 1 }))
    })
}

/// An operator has an operand on both sides; a column of that name would stand beside a comma or keyword.
fn call_or_list(code: &[Token<'_>], n: usize) -> bool {
    let side = |t: Option<&Token<'_>>| t.is_none_or(|t| matches!(t.text, "," | "." | "="));
    side(n.checked_sub(1).and_then(|m| code.get(m))) || side(code.get(n + 1))
}

/// `id SERIAL PRIMARY KEY` in a CREATE TABLE: SQLite takes any word for a type, and would then give no
/// number to a new row.
pub fn serial(statement: &str) -> Option<(String, Vec<String>)> {
    let first = super::split::code(statement);
    if !first.first()?.is("CREATE") {
        return None;
    }
    replace(statement, |code, n| {
        let serial = ["SERIAL", "BIGSERIAL", "SMALLSERIAL"].iter().any(|w| code[n].is(w));
        let key =
            code.get(n + 1).is_some_and(|t| t.is("PRIMARY")) && code.get(n + 2).is_some_and(|t| t.is("KEY"));
        let column = n >= 2 && code[n - 1].name().is_some() && matches!(code[n - 2].text, "(" | ",");
        (serial && key && column).then_some(("INTEGER", 1))
    })
}

/// Every name `from` as `to`: a guess, which only a statement that reads may run by.
pub(crate) fn rename(statement: &str, from: &str, to: &str) -> Option<String> {
    let matches = |t: &Token<'_>| t.kind == Kind::Word && t.text.eq_ignore_ascii_case(from);
    replace(statement, |code, n| matches(&code[n]).then_some((to, 1))).map(|(text, _)| text)
}

/// Replaces code tokens: `with` gets them all and an index, and gives the new text and how many tokens
/// it stands for. Gaps and all other tokens stay byte for byte.
fn replace<'a>(
    statement: &str,
    with: impl Fn(&[Token<'_>], usize) -> Option<(&'a str, usize)>,
) -> Option<(String, Vec<String>)> {
    let code = super::split::code(statement);
    let mut out = String::new();
    let mut notes: Vec<String> = vec![];
    let mut from = 0;
    let mut n = 0;
    while n < code.len() {
        if code[n].kind == Kind::Word
            && let Some((text, count)) = with(&code, n)
        {
            let end = code[(n + count - 1).min(code.len() - 1)].end();
            out.push_str(&statement[from..code[n].start]);
            out.push_str(text);
            let note = format!("{} was read as {text}", &statement[code[n].start..end]);
            if !notes.contains(&note) {
                notes.push(note);
            }
            from = end;
            n += count;
        } else {
            n += 1;
        }
    }
    if notes.is_empty() {
        return None;
    }
    out.push_str(&statement[from..]);
    Some((out, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_and_sentences_around_statements_are_left_out() {
        for text in [
            "```sql\nSELECT 1\n```",
            "Here's the query:\n```\nSELECT 1\n```\nThis counts rows.",
            "Here is the query:\nSELECT 1",
            "```sql\nSELECT 1\n```  ",
        ] {
            assert_eq!(outside(text).0, "SELECT 1", "{text}");
        }
        assert_eq!(outside("SELECT 1;\nThis gives one.").0, "SELECT 1;");
    }

    #[test]
    fn what_may_be_part_of_a_statement_stays() {
        for text in [
            "EXPLIAN\nDELETE FROM t",
            "SELECT '```\n' || 'x'",
            "INSERT INTO t VALUES ('```sql\nx\n```')",
            "EXPLAIN:\nDELETE FROM t",
            "only in 'x':\nDELETE FROM t",
            "SELECT 1; DELET FROM t",
            "SELECT a\nFROM t:\nDELETE FROM t",
        ] {
            assert_eq!(outside(text).0, text);
        }
        let inner = "```\nINSERT INTO t VALUES ('a\n```\nb')\n```";
        assert_eq!(outside(inner).0, "INSERT INTO t VALUES ('a\n```\nb')");
    }

    #[test]
    fn spellings_are_replaced_one_for_one() {
        let spelled = |s| spelling(s).map(|(t, _)| t);
        assert_eq!(
            spelled("SELECT * FROM t WHERE a ILIKE 'NOW()%'").unwrap(),
            "SELECT * FROM t WHERE a LIKE 'NOW()%'"
        );
        assert_eq!(
            spelled("INSERT INTO t VALUES (now ( ), 'x')").unwrap(),
            "INSERT INTO t VALUES (CURRENT_TIMESTAMP, 'x')"
        );
        assert_eq!(spelled("SELECT len, t.nvl, \"NOW\"() FROM t"), None);
        assert_eq!(
            spelled("SELECT LEN(a) /* LEN(b) */ FROM t").unwrap(),
            "SELECT length(a) /* LEN(b) */ FROM t"
        );
        let made = serial("CREATE TABLE t (id SERIAL PRIMARY KEY, serial TEXT)").unwrap().0;
        assert_eq!(made, "CREATE TABLE t (id INTEGER PRIMARY KEY, serial TEXT)");
        assert_eq!(serial("CREATE TABLE t (serial PRIMARY KEY)"), None);
    }
}
