//! A batch as statements.

use super::tokens::{Kind, Token, tokens};

/// Parts of `sql` between its semicolons, without empty ones; a trigger's body stays whole. Comments
/// stay with the statement that they stand in or before.
pub(crate) fn statements(sql: &str) -> Vec<&str> {
    let all = tokens(sql);
    let mut out = Vec::new();
    let mut start = 0;
    let mut first = 0;
    for (n, token) in all.iter().enumerate() {
        if token.kind == Kind::Semicolon && !inside_trigger(&all[first..n]) {
            push(&mut out, sql, start, token.start);
            start = token.end();
            first = n + 1;
        }
    }
    push(&mut out, sql, start, sql.len());
    out
}

fn push<'a>(out: &mut Vec<&'a str>, sql: &'a str, from: usize, to: usize) {
    let part = sql[from..to].trim();
    if tokens(part).iter().any(Token::is_code) {
        out.push(part);
    }
}

/// True if these tokens begin a CREATE TRIGGER whose END has not come yet.
fn inside_trigger(part: &[Token<'_>]) -> bool {
    let code: Vec<&Token<'_>> = part.iter().filter(|t| t.is_code()).collect();
    let mut words = code.iter().skip_while(|t| t.is("EXPLAIN") || t.is("QUERY") || t.is("PLAN"));
    let creates = words.next().is_some_and(|t| t.is("CREATE"));
    let trigger = words.find(|t| !(t.is("TEMP") || t.is("TEMPORARY"))).is_some_and(|t| t.is("TRIGGER"));
    if !creates || !trigger || !code.iter().any(|t| t.is("BEGIN")) {
        return false;
    }
    // The body's END follows a semicolon; the END of a CASE never does.
    let ended = code.last().is_some_and(|t| t.is("END"))
        && code.get(code.len().wrapping_sub(2)).is_some_and(|t| t.kind == Kind::Semicolon);
    !ended
}

/// The words and names of a statement that mean something, without blanks and comments.
pub(crate) fn code(sql: &str) -> Vec<Token<'_>> {
    tokens(sql).into_iter().filter(Token::is_code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_strings_comments_and_triggers_do_not_split() {
        let sql = "select ';' -- a;b\n; create trigger t after insert on a begin update b set x = case when 1 then ';' end; \
                   delete from c; end; ; /* ; */ select 2";
        let parts = statements(sql);
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert!(parts[1].ends_with("end"));
        assert_eq!(statements(" ;; -- nothing"), Vec::<&str>::new());
    }
}
