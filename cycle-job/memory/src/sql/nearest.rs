//! The nearest right name to a wrong one.

/// Edit distance of two texts in characters.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut line: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = line[0];
        line[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = line[j + 1];
            line[j + 1] = change.min(line[j] + 1).min(diagonal + 1);
        }
    }
    line[b.len()]
}

/// The one candidate that is clearly nearest to `wrong`: at most a third of its characters differ, and
/// no other is as near.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let allowed = (wrong.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|c| {
            let lower = c.to_lowercase();
            // A plural or a missing separator is nearer than any other change.
            let plain = |t: &str| t.replace('_', "").trim_end_matches('s').to_owned();
            (if plain(&lower) == plain(&wrong) { 0 } else { distance(&wrong, &lower) }, c)
        })
        .filter(|(d, _)| *d <= allowed)
        .collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [(_, only)] => Some(only),
        [(a, first), (b, _), ..] if a < b => Some(first),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_given_only_if_it_is_clear() {
        assert_eq!(nearest("prise", ["price", "product", "day"]), Some("price"));
        assert_eq!(nearest("Customer", ["customers", "orders"]), Some("customers"));
        assert_eq!(nearest("createdat", ["created_at", "updated_at"]), Some("created_at"));
        assert_eq!(nearest("col_x", ["col_a", "col_b"]), None, "two are as near");
        assert_eq!(nearest("zebra", ["price"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
